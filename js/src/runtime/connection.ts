/** One connection: reads a transport in order, and speaks to the server in its dialect. */

import type { Clock } from '../clock.js';
import type { PlainDialect } from '../dialects/plain/plain_dialect.js';
import type { ClientFrame, ServerFrame } from '../generated/wire.js';
import { BY_SEQ } from '../session/cursor.js';
import { needsDialect } from '../session/peer.js';
import type { Session } from '../session/session.js';
import type { Receiver, Transport, TransportEnd } from '../transports/transport.js';
import type { Logger } from '../values.js';
import type { Loose } from '../wire/compact.js';
import { type Decoded, Malformed, Unknown } from '../wire/decoded.js';
import { PARTS } from './parts.js';
import { within } from './waiting.js';

/** Milliseconds to wait for a part of the client that a frame needs. */
const LOAD_TIMEOUT = 10_000;

/** How a connection ends that needs a part of the client which does not load. */
export const NOT_LOADED: TransportEnd = {
  code: undefined,
  reason: 'A part of the client did not load.',
};

/** The client that a connection belongs to. */
export interface Owner {
  readonly session: Session;
  readonly clock: Clock;
  readonly options: { readonly logger: Logger };
  /** An invalid frame was skipped, for this reason. */
  malformed(reason: string): void;
  /** The transport is open. */
  opened(incremental: boolean): void;
  /** It is gone, or did not open. */
  dropped(end: TransportEnd): void;
  /** A frame was handled. */
  handled(): void;
}

/** A transport from its opening to its end. */
export class Connection implements Receiver {
  /** Let the program run after the frame at hand: an inbox is full, or has failed. */
  crowded = false;
  /** Frames of the call at hand, which leave together. */
  private _outgoing: ClientFrame[] = [];
  /** In order; what is yet to be read holds up what follows it. */
  private _arrived: (Decoded | Promise<Decoded>)[] = [];
  /** The program gets a turn, or a part of the client is loaded, before the frames that wait. */
  private _paused = false;
  private _closed = false;
  private _over: TransportEnd | undefined;
  private _dialect: PlainDialect | undefined;

  /** Takes the frames: the session, or the dialect before it. */
  private _target: Session | PlainDialect;

  /**
   * @param _owner Hears of what happens.
   * @param _transport It is not open yet, and never calls back at once.
   */
  constructor(
    private readonly _owner: Owner,
    private readonly _transport: Transport,
  ) {
    this._target = _owner.session;
  }

  /** Connect. */
  open(): void {
    this._transport.open(this);
  }

  /** Whether subscriptions may come and go one by one. */
  get incremental(): boolean {
    return this._transport.incremental;
  }

  /** Milliseconds since the last byte; 0 while the program itself holds up the reading. */
  get idle(): number {
    if (this._paused) return 0;
    return Math.max(0, Math.round(this._owner.clock.now() - this._transport.lastHeard));
  }

  /** Have a frame sent with the next `flush`, in the words of the server. */
  send(frame: Loose<ClientFrame>): void {
    if (this._dialect) this._dialect.send(frame);
    else this._outgoing.push(frame as ClientFrame);
  }

  /** Hand the frames to the transport, together. */
  flush(): void {
    if (!this._outgoing.length) return;
    const frames = this._outgoing;
    this._outgoing = [];
    this._transport.send(frames);
  }

  /** Close it, or give up opening it; nothing of it is reported after that. */
  close(code: number): void {
    this.flush();
    this._closed = true;
    this._transport.close(code);
  }

  // ---------------------------------------------------------------- from the transport

  opened(): void {
    if (!this._closed) this._owner.opened(this.incremental);
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
      owner.malformed(read.reason);
    } else if (read instanceof Unknown) {
      const type = JSON.stringify(read.type);
      owner.options.logger.debug?.(`A frame of unknown type ${type} was ignored.`);
    } else {
      if (read.type === 'auth.ok' && !this._chooseDialect(read)) return;
      this._target.receive(read, owner.clock.wallMs());
      if (read.type === 'message' && !this._outgoing.length && !this.crowded) return;
    }
    owner.handled();
    if (!this.crowded) return;
    this.crowded = false;
    this._paused = true;
    owner.clock.callSoon(() => this._resume());
  }

  ended(end: TransportEnd): void {
    this._over = end;
    if (!this._paused) this._resume();
  }

  // ---------------------------------------------------------------- inside

  /** Speak as the server does; false where that is yet to be loaded. */
  private _chooseDialect(welcome: Extract<ServerFrame, { readonly type: 'auth.ok' }>): boolean {
    const { session } = this._owner;
    if (!needsDialect(welcome)) {
      this._dialect = undefined;
      this._target = session;
      session.subscriptions.cursors = BY_SEQ;
    } else if (!this._dialect) {
      const loaded = PARTS.plain().then(({ PlainDialect }) => {
        this._dialect = new PlainDialect(session, (frame) => void this._outgoing.push(frame));
        this._target = this._dialect;
        return welcome;
      });
      this._wait(loaded);
      return false;
    }
    return true;
  }

  /** Wait for the next frame, as long as what reads it takes to load. */
  private _wait(next: Promise<Decoded>): void {
    this._paused = true;
    within(next, undefined, this._owner.clock, LOAD_TIMEOUT)
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

  /** Read what has arrived meanwhile. */
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
