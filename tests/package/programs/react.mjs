import * as sdk from '@hanzoai/pubsub';
import * as react from '@hanzoai/pubsub/react';
import * as server from 'react-dom/server';
import { render } from './rendered.cjs';

process.stdout.write(JSON.stringify(render(sdk, react, server)));
