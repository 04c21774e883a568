/** A WebSocket whose other end is in this process. */

import type { ServerFrame } from '../generated/wire.js';
import type { WebSocketLike } from '../settings/options.js';
import type { End, Link } from './link.js';

const CONNECTING = 0;
const OPEN = 1;
const CLOSING = 2;
const CLOSED = 3;

/** What answers a socket that is made. */
export type Accept = (end: End) => Promise<Link>;

/** Why a connection is refused. */
export interface Refusal {
  /** Close code; undefined like a network that is down. */
  readonly code: number | undefined;
  readonly reason: string;
  /** Milliseconds that clients are asked to wait. */
  readonly retryAfter: number | undefined;
}

type Listener = (event: object) => void;

/** As browsers and the package `ws` make them. */
export class MemorySocket implements WebSocketLike, End {
  readonly transport = 'websocket';
  binaryType = 'blob';
  readyState: number = CONNECTING;
  private readonly _listeners = new Map<string, Set<Listener>>();
  private _link: Link | undefined;

  /** @param accept Resolves to the server's end, rejects with a `Refusal`. */
  constructor(accept: Accept) {
    accept(this).then(
      (link) => {
        if (this.readyState !== CONNECTING) return link.closed();
        this._link = link;
        this.readyState = OPEN;
        this._tell('open', {});
      },
      ({ code, reason }: Refusal) => this.ended(code, reason),
    );
  }

  addEventListener(type: string, listener: (event: never) => void): void {
    const listeners = this._listeners.get(type) ?? new Set();
    this._listeners.set(type, listeners.add(listener as Listener));
  }

  /** As sockets of `ws` have it, which tell of pings. */
  on(type: string, listener: (data: string, isBinary: boolean) => void): void {
    this.addEventListener(type, ({ data }: { data: string }) => listener(data, false));
  }

  send(data: string): void {
    if (this.readyState === OPEN) this._link?.receive(data);
  }

  close(code = 1000): void {
    if (this.readyState >= CLOSING) return;
    this.readyState = CLOSING;
    this._link?.closed(code);
    void Promise.resolve().then(() => this.ended(code, ''));
  }

  /** As sockets of `ws` have it. */
  terminate(): void {
    this.close(1006);
  }

  // ---------------------------------------------------------------- what arrives

  arrived(frame: ServerFrame): void {
    if (this.readyState === OPEN) this._tell('message', { data: JSON.stringify(frame) });
  }

  heard(): void {
    if (this.readyState === OPEN) this._tell('ping', {});
  }

  ended(code: number | undefined, reason: string): void {
    if (this.readyState === CLOSED) return;
    this.readyState = CLOSED;
    this._link = undefined;
    this._tell('close', { code: code ?? 1006, reason: code === undefined ? '' : reason });
  }

  private _tell(type: string, event: object): void {
    for (const listener of [...(this._listeners.get(type) ?? [])]) listener(event);
  }
}
