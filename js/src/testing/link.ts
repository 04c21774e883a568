/** A connection between a client and the hub in the same process. */

import type { ServerFrame } from '../generated/wire.js';
import type { Connection, Sink } from './connection.js';
import type { Hub } from './hub.js';

/** The part of the server that a link needs. */
export interface Host {
  /** Whether frames are held back in both directions. */
  readonly isFrozen: boolean;
  /** Whether to deliver a frame of this type; counts down the frames to lose. */
  takes(type: string): boolean;
  /** Record a frame of a client, for assertions of the test. */
  note(text: string): void;
  /** Add a new connection. */
  came(link: Link): void;
  /** Remove a connection that has ended. */
  gone(link: Link): void;
}

/** The end on the side of the client: a socket or an event stream. */
export interface End {
  readonly transport: 'websocket' | 'sse';
  /** Receive a frame; `id` is the position from which an event stream resumes after it. */
  arrived(frame: ServerFrame, id: string | undefined): void;
  /** Receive a ping or a heartbeat of the server. */
  pinged(): void;
  /** Handle the end of the connection. No code means that it was lost. */
  ended(code: number | undefined, reason: string): void;
}

/**
 * The end on the side of the server: the sink of the hub, and the target of the frames that the
 * client sends.
 */
export class Link implements Sink {
  readonly connection: Connection;
  private _held: (() => void)[] = [];
  private _underWay: (() => void)[] = [];
  private _hasEnded = false;

  constructor(
    private readonly _host: Host,
    private readonly _hub: Hub,
    private readonly _end: End,
  ) {
    this.connection = _hub.open(this);
    _host.came(this);
  }

  get isStream(): boolean {
    return this._end.transport === 'sse';
  }

  /** The transport of the connection. */
  get transport(): 'websocket' | 'sse' {
    return this._end.transport;
  }

  // ---------------------------------------------------------------- from the client

  /** Process a frame that the client sent. */
  receive(text: string): void {
    this._pass(() => {
      this._host.note(text);
      this._hub.touch(this.connection);
      this._hub.receive(this.connection, text);
    });
  }

  /** Handle a close by the client. */
  closed(code?: number): void {
    if (this._hasEnded) return;
    this._hasEnded = true;
    this._underWay = [];
    this._host.gone(this);
    this._hub.closed(this.connection, code);
  }

  // ---------------------------------------------------------------- Sink

  write(frame: ServerFrame, id?: string): void {
    if (this._hasEnded) return;
    this._pass(() => {
      if (this._host.takes(frame.type)) this._carry(() => this._end.arrived(frame, id));
    });
  }

  ping(): void {
    this._pass(() => {
      // A WebSocket library answers a ping by itself, even while the program is busy.
      if (!this.isStream) this._hub.touch(this.connection);
      this._carry(() => this._end.pinged());
    });
  }

  close(code: number, reason: string): void {
    if (this._hasEnded) return;
    this._hasEnded = true;
    this._host.gone(this);
    this._carry(() => this._end.ended(code, reason));
  }

  // ---------------------------------------------------------------- faults

  /** Break the connection for both sides. Without a code, frames in flight are lost. */
  cut(code: number | undefined, reason: string): void {
    if (this._hasEnded) return;
    if (code === undefined) this._underWay = [];
    this._carry(() => this._end.ended(code, reason || 'the connection was lost'));
    this._hasEnded = true;
    this._host.gone(this);
    this._hub.closed(this.connection);
  }

  /** Deliver the frames that were held back. */
  thaw(): void {
    for (const pass of this._held.splice(0)) pass();
  }

  private _pass(action: () => void): void {
    if (this._host.isFrozen) this._held.push(action);
    else action();
  }

  /** Deliver asynchronously and in order, as a network does. */
  private _carry(arrive: () => void): void {
    this._underWay.push(arrive);
    if (this._underWay.length > 1) return;
    void Promise.resolve().then(() => {
      for (let next = this._underWay[0]; next; next = this._underWay[0]) {
        this._underWay.shift();
        next();
      }
    });
  }
}
