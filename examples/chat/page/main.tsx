/** The page: the user of this tab, the connection, and the room. */

import type { PubSubOptions } from '@hanzoai/pubsub';
import { PubSubProvider } from '@hanzoai/pubsub/react';
import { createRoot } from 'react-dom/client';

import { config, token } from './backend.js';
import { Room } from './room.js';
import { userOfThisTab } from './users.js';

const user = userOfThisTab();
const { ws, http, room, scribe } = await config();

const options: PubSubOptions = {
  url: ws,
  restUrl: http,
  name: 'chat-page',
  getToken: (_, { signal }) => token(user, signal),
};

const place = document.getElementById('chat');
if (place) {
  createRoot(place).render(
    <PubSubProvider options={options}>
      <Room topic={room} scribe={scribe} user={user} />
    </PubSubProvider>,
  );
}
