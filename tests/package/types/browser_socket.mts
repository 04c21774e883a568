/** WebSockets of a program's own, where the types are those of browsers. */

import { PubSub, type WebSocketConstructor } from '@hanzoai/pubsub';

class Counted extends WebSocket {
  sent = 0;

  override send(data: string): void {
    this.sent += 1;
    super.send(data);
  }
}

export const own: WebSocketConstructor = Counted;

export const ps: PubSub = new PubSub({ token: 'ey...', WebSocket: Counted });

// @ts-expect-error A worker is no socket.
new PubSub({ token: 'ey...', WebSocket: Worker });
