/** One connection between a client and the hub, both in this process. */

import type { ServerFrame } from '../generated/wire.js';
import type { Connection, Sink } from './connection.js';
import type { Hub } from './hub.js';

/** What a link asks the server. */
export interface Host {
  /** Whether nothing goes either way. */
  readonly isFrozen: boolean;
  /** Whether a frame of this type is to arrive; counts those that are to be lost. */
  takes(type: string): boolean;
  /** Keep a frame of a client for the test to look at. */
  note(text: string): void;
  /** A connection has come. */
  came(link: Link): void;
  /** A connection has ended. */
  gone(link: Link): void;
}

/** The client's end: a socket or an event stream. */
export interface End {
  readonly transport: 'websocket' | 'sse';
  /** A frame has arrived; with where an event stream resumes after it. */
  arrived(frame: ServerFrame, id: string | undefined): void;
  /** The server was heard. */
  heard(): void;
  /** The connection has ended; without a code it broke. */
  ended(code: number | undefined, reason: string): void;
}

/** The server's end: the hub's sink, and what the client's end writes to. */
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

  /** Which transport it is. */
  get transport(): 'websocket' | 'sse' {
    return this._end.transport;
  }

  // ---------------------------------------------------------------- from the client

  /** The client has sent a frame. */
  receive(text: string): void {
    this._pass(() => {
      this._host.note(text);
      this._hub.heard(this.connection);
      this._hub.receive(this.connection, text);
    });
  }

  /** The client has ended it. */
  closed(code?: number): void {
    if (this._hasEnded) return;
    this._hasEnded = true;
    this._underWay = [];
    this._host.gone(this);
    this._hub.closed(this.connection, code);
  }

  // ---------------------------------------------------------------- the hub's sink

  write(frame: ServerFrame, id?: string): void {
    if (this._hasEnded) return;
    this._pass(() => {
      if (this._host.takes(frame.type)) this._carry(() => this._end.arrived(frame, id));
    });
  }

  ping(): void {
    this._pass(() => {
      // A WebSocket library answers by itself, whatever the program is doing.
      if (!this.isStream) this._hub.heard(this.connection);
      this._carry(() => this._end.heard());
    });
  }

  close(code: number, reason: string): void {
    if (this._hasEnded) return;
    this._hasEnded = true;
    this._host.gone(this);
    this._carry(() => this._end.ended(code, reason));
  }

  // ---------------------------------------------------------------- faults

  /** Break the connection for both sides; without a code, what is under way is lost. */
  cut(code: number | undefined, reason: string): void {
    if (this._hasEnded) return;
    if (code === undefined) this._underWay = [];
    this._carry(() => this._end.ended(code, reason || 'the connection was lost'));
    this._hasEnded = true;
    this._host.gone(this);
    this._hub.closed(this.connection);
  }

  /** What was held goes on. */
  thaw(): void {
    for (const pass of this._held.splice(0)) pass();
  }

  private _pass(action: () => void): void {
    if (this._host.isFrozen) this._held.push(action);
    else action();
  }

  /** Let something arrive in its turn, as it does from a network. */
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
