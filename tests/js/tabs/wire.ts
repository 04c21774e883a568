/** The frames on the sockets of a test. */

import WebSocket from 'ws';

import type { WebSocketConstructor } from '../../../js/src/index.js';

interface Frame {
  readonly type: string;
  readonly [key: string]: unknown;
}

/** Sockets that record their frames. */
export class Wire {
  readonly sockets: WebSocket[] = [];
  readonly sent: Frame[] = [];
  /** The constructor for the client's option `WebSocket`. */
  readonly WebSocket: WebSocketConstructor;
  private readonly _got: string[] = [];

  constructor() {
    const { sockets, sent, _got: got } = this;
    class Recorded extends WebSocket {
      constructor(url: string) {
        super(url);
        sockets.push(this);
        this.on('message', (data) => got.push(JSON.parse(String(data)).type));
      }
      override send(data: string): void {
        sent.push(JSON.parse(data));
        super.send(data);
      }
    }
    this.WebSocket = Recorded as unknown as WebSocketConstructor;
  }

  /** Sockets that are open or connecting. */
  get open(): number {
    return this.sockets.filter(({ readyState }) => readyState <= WebSocket.OPEN).length;
  }

  /** Sent frames of a type. */
  count(type: string): number {
    return this.sent.filter((frame) => frame.type === type).length;
  }

  /** Received frames of a type. */
  received(type: string): number {
    return this._got.filter((got) => got === type).length;
  }
}
