/** The page that the test of signed topics opens, built from the example. */

import { fromHex } from '@hanzoai/pubsub/soc';
import { createRoot } from 'react-dom/client';

import { App } from '../../../examples/react/signed.js';

declare const given: {
  readonly options: { readonly url: string; readonly restUrl: string; readonly token: string };
  readonly owner: string;
  readonly id: string;
};

const { options, id } = given;
const owner = fromHex(given.owner, 20, 'owner');
const root = createRoot(document.body.appendChild(document.createElement('main')));
root.render(<App options={options} owner={owner} id={id} />);
