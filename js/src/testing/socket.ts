/** A WebSocket whose other end is in this process. */

import type { ServerFrame } from '../generated/wire.js';
import type { WebSocketLike } from '../settings/options.js';
import type { End, Link } from './link.js';

const CONNECTING = 0;
const OPEN = 1;
const CLOSING = 2;
const CLOSED = 3;

/** Accepts a new socket. */
export type Accept = (end: End) => Promise<Link>;

/** The reason why a connection is rejected. */
export interface Refusal {
  /** Close code; undefined behaves like a network that is down. */
  readonly code: number | undefined;
  readonly reason: string;
  /** Milliseconds that clients are asked to wait. */
  readonly retryAfter: number | undefined;
}

type Listener = (event: object) => void;

/** A WebSocket with the interface of browsers, and the additions of the package `ws`. */
export class MemorySocket implements WebSocketLike, End {
  readonly transport = 'websocket';
  binaryType = 'blob';
  readyState: number = CONNECTING;
  private readonly _listeners = new Map<string, Set<Listener>>();
  private _link: Link | undefined;

  /** @param accept Resolves to the end on the server, or rejects with a `Refusal`. */
  constructor(accept: Accept) {
    accept(this).then(
      (link) => {
        if (this.readyState !== CONNECTING) return link.closed();
        this._link = link;
        this.readyState = OPEN;
        this._dispatch('open', {});
      },
      ({ code, reason }: Refusal) => this.ended(code, reason),
    );
  }

  addEventListener(type: string, listener: (event: never) => void): void {
    const listeners = this._listeners.get(type) ?? new Set();
    this._listeners.set(type, listeners.add(listener as Listener));
  }

  /** Add a listener in the way of `ws`, whose sockets also report pings. */
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

  /** Drop the connection, as sockets of `ws` can. */
  terminate(): void {
    this.close(1006);
  }

  // ---------------------------------------------------------------- End

  arrived(frame: ServerFrame): void {
    if (this.readyState === OPEN) this._dispatch('message', { data: JSON.stringify(frame) });
  }

  pinged(): void {
    if (this.readyState === OPEN) this._dispatch('ping', {});
  }

  ended(code: number | undefined, reason: string): void {
    if (this.readyState === CLOSED) return;
    this.readyState = CLOSED;
    this._link = undefined;
    this._dispatch('close', { code: code ?? 1006, reason: code === undefined ? '' : reason });
  }

  private _dispatch(type: string, event: object): void {
    for (const listener of [...(this._listeners.get(type) ?? [])]) listener(event);
  }
}
