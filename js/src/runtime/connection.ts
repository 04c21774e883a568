/** One connection: reads a transport in order, and uses the server's dialect. */

import { DEVELOPMENT } from '../build.js';
import type { Loose } from '../compact.js';
import { needsDialect } from '../dialects/needs_dialect.js';
import type { PlainDialect } from '../dialects/plain/plain_dialect.js';
import { ProtocolError } from '../errors.js';
import type { ClientFrame, ServerFrame } from '../generated/wire.js';
import { logText } from '../log_text.js';
import {
  NOT_LOADED,
  type Receiver,
  type Transport,
  type TransportEnd,
} from '../transports/transport.js';
import { type Decoded, Malformed, Unknown } from '../wire/decoded.js';
import type { Client } from './environment.js';
import { PARTS } from './parts.js';
import { within } from './waiting.js';

/** Milliseconds to wait for a part of the client that a frame needs. */
const LOAD_TIMEOUT = 10_000;

/** A transport from its opening, which the owner starts, to its end. */
export class Connection implements Receiver {
  /** Frames of the current call, which are sent together. */
  private _outgoing: ClientFrame[] = [];
  /** Received frames in order; an undecoded frame delays later ones. */
  private _arrived: (Decoded | Promise<Decoded>)[] = [];
  /** Whether the program runs, or a part of the client loads, before the waiting frames. */
  private _paused = false;
  private _closed = false;
  private _over: TransportEnd | undefined;
  /** In front of the session, if the server needs one. */
  private _dialect: PlainDialect | undefined;

  /** @param _transport Never calls back synchronously. */
  constructor(
    private readonly _owner: Client,
    readonly _transport: Transport,
  ) {}

  /** Milliseconds since the last byte; 0 while the program itself delays reading. */
  get idle(): number {
    if (this._paused) return 0;
    return Math.max(0, Math.round(this._owner.clock.now() - this._transport.lastReceived));
  }

  /** Send a frame with the next `flush`, in the server's dialect. */
  send(frame: Loose<ClientFrame>): void {
    if (this._dialect) this._dialect.send(frame);
    else this._outgoing.push(frame as ClientFrame);
  }

  /** Pass the frames to the transport together. */
  flush(): void {
    if (!this._outgoing.length) return;
    const frames = this._outgoing;
    this._outgoing = [];
    this._transport.send(frames);
  }

  /** Close it, or stop opening it; it reports nothing afterwards. */
  close(code: number): void {
    this.flush();
    this._closed = true;
    this._transport.close(code);
  }

  // ---------------------------------------------------------------- from the transport

  opened(): void {
    if (!this._closed)
      this._owner.perform((session) => session.opened(this._transport.incremental));
  }

  frame(read: Decoded | Promise<Decoded>): void {
    const { _owner: owner } = this;
    if (this._closed) return;
    if (this._paused) {
      this._arrived.push(read);
      return;
    }
    if (read instanceof Promise) {
      this._wait(read);
      return;
    }
    if (read instanceof Malformed) {
      owner.listeners.report(
        new ProtocolError(DEVELOPMENT ? `A frame was skipped: ${read.reason}.` : read.reason),
      );
    } else if (read instanceof Unknown) {
      if (DEVELOPMENT) {
        const type = logText(JSON.stringify(read.type));
        owner.options.logger.debug?.(`A frame of unknown type ${type} was ignored.`);
      }
    } else if (read.type === 'message') {
      owner.session.operations?.subscriptions.message(read.message);
      if (!this._outgoing.length && !owner.giveWay) return;
    } else {
      if (read.type === 'auth.ok' && !this._isReady(read)) return;
      if (read.type === 'error' || read.type === 'auth.error') owner.tokens._redact(read);
      (this._dialect ?? owner.session).receive(read, owner.clock.wallMs());
    }
    owner.handled();
    if (!owner.giveWay) return;
    owner.giveWay = false;
    this._paused = true;
    owner.clock.callSoon(() => this._resume());
  }

  ended(end: TransportEnd): void {
    this._over = end;
    if (!this._paused) this._resume();
  }

  // ---------------------------------------------------------------- inside

  /** Whether the parts for this server are loaded; otherwise, the frame waits for them. */
  private _isReady(welcome: Extract<ServerFrame, { readonly type: 'auth.ok' }>): boolean {
    const { _owner: owner } = this;
    const isPlain = needsDialect(welcome);
    if (!isPlain) this._dialect = undefined;
    if (owner.session.operations && (this._dialect || !isPlain)) return true;
    const dialect = isPlain ? PARTS.plain() : undefined;
    const loaded = Promise.all([dialect, owner.background()]).then(([plain]) => {
      const send = (frame: ClientFrame): void => void this._outgoing.push(frame);
      this._dialect = plain && new plain.PlainDialect(owner.session, send);
      return welcome;
    });
    // The server has answered, so the transport works, however long the parts take.
    owner.session.lifecycle._stop('open', 'fallback');
    this._wait(loaded);
    return false;
  }

  /** Wait with the next frame until its reader is loaded. */
  private _wait(next: Promise<Decoded>): void {
    const { clock } = this._owner;
    this._paused = true;
    within(next, { end: clock.now() + LOAD_TIMEOUT }, clock)
      .catch(() => undefined)
      .then((read) => {
        if (read) {
          this._arrived.unshift(read);
        } else {
          this._arrived = [];
          this._over = NOT_LOADED;
          this._transport.close();
        }
        this._resume();
      });
  }

  private _resume(): void {
    this._paused = false;
    for (let next = this._arrived.shift(); next; next = this._arrived.shift()) {
      this.frame(next);
      if (this._paused) return;
    }
    if (!this._over || this._closed) return;
    this._closed = true;
    this._owner.dropped(this._over);
  }
}
