/** The WebSocket of the package `ws`, and one of a program's own, where the types are those of Node. */

import { PubSub } from '@hanzoai/pubsub';
import WebSocket from 'ws';

class Counted extends WebSocket {
  override send(data: string): void {
    super.send(data);
  }
}

export const clients: readonly PubSub[] = [
  new PubSub({ token: 'ey...', WebSocket }),
  new PubSub({ token: 'ey...', WebSocket: Counted }),
];
