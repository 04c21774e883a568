/** The transport of a client: dials, reads, hangs up; one at a time, in the dialect of its server. */

import type { Clock } from '../clock.js';
import type { PlainDialect } from '../dialects/plain/plain_dialect.js';
import type { ClientFrame, ServerFrame } from '../generated/wire.js';
import { BY_SEQ } from '../session/cursor.js';
import { needsDialect } from '../session/peer.js';
import type { TransportName } from '../session/ports.js';
import type { Session } from '../session/session.js';
import type { Transport, TransportEnd } from '../transports/transport.js';
import type { Logger } from '../values.js';
import type { Loose } from '../wire/compact.js';
import { type Decoded, Malformed, Unknown } from '../wire/decoded.js';
import { PARTS } from './parts.js';

/** Milliseconds to wait for a part of the client that a frame needs. */
const LOAD_TIMEOUT = 10_000;
const NOT_LOADED: TransportEnd = {
  code: undefined,
  reason: 'A part of the client did not load.',
};

/** What a connection reports beside the frames that it hands to the session. */
export interface ConnectionEvents {
  /** The session, made at the first use. */
  readonly session: Session;
  /** An invalid frame was skipped, for this reason. */
  malformed(reason: string): void;
  /** The transport is open. */
  opened(incremental: boolean): void;
  /** It is gone, or did not open. */
  dropped(end: TransportEnd): void;
  /** A frame was handled. */
  handled(): void;
}

interface Link {
  readonly transport: Transport;
  /** Takes the frames: the session, or the dialect before it. */
  target: Session | PlainDialect;
  dialect: PlainDialect | undefined;
  /** The program gets a turn, or a part of the client is loaded, before the frames that wait. */
  paused: boolean;
}

/** Makes a transport that is not open yet. */
export type DialTransport = (name: TransportName) => Transport | Promise<Transport>;

/** Owns the transport of the present connection. */
export class Connection {
  private _outgoing: ClientFrame[] = [];
  private _link: Link | undefined;
  private _next: TransportName | undefined;
  private _dialing = 0;
  private _crowded = false;
  private _Dialect: typeof PlainDialect | undefined;

  /**
   * @param _events Hears of what happens.
   * @param _dial Makes a transport that is not open yet.
   * @param _clock Time.
   * @param _logger Gets the types of frames of a later version.
   */
  constructor(
    private readonly _events: ConnectionEvents,
    private readonly _dial: DialTransport,
    private readonly _clock: Clock,
    private readonly _logger: Logger,
  ) {}

  /** Whether subscriptions of the present transport may come and go one by one. */
  get incremental(): boolean {
    return this._link?.transport.incremental ?? true;
  }

  /** Milliseconds since the last byte; 0 while the program itself holds up the reading. */
  get idle(): number {
    const link = this._link;
    if (!link || link.paused) return 0;
    return Math.max(0, Math.round(this._clock.now() - link.transport.lastHeard));
  }

  /** Have a frame sent with the next `flush`, in the words of the server. */
  send(frame: Loose<ClientFrame>): void {
    const dialect = this._link?.dialect;
    if (dialect) dialect.send(frame);
    else this._outgoing.push(frame as ClientFrame);
  }

  /** Have a transport opened with the next `flush`. */
  dial(name: TransportName): void {
    this._next = name;
  }

  /** Hand the frames to the transport, together; open the next one. */
  flush(): void {
    if (this._next) this._open(this._next);
    if (!this._outgoing.length || !this._link) return;
    const frames = this._outgoing;
    this._outgoing = [];
    this._link.transport.send(frames);
  }

  /** After the frame at hand, let the program run: an inbox is full, or has failed. */
  giveWay(): void {
    this._crowded = true;
  }

  /** Close it, or give up opening it; nothing of it is reported after that. */
  hangUp(code: number): void {
    this._next = undefined;
    this.flush();
    this._outgoing = [];
    this._dialing += 1;
    const link = this._link;
    this._link = undefined;
    link?.transport.close(code);
  }

  // ---------------------------------------------------------------- inside

  private _open(name: TransportName): void {
    this._next = undefined;
    this._dialing += 1;
    const number = this._dialing;
    const made = this._dial(name);
    if (!(made instanceof Promise)) {
      this._read(made);
      return;
    }
    made.then(
      (transport) => {
        if (number === this._dialing) this._read(transport);
      },
      () => {
        if (number === this._dialing) this._events.dropped(NOT_LOADED);
      },
    );
  }

  private _read(transport: Transport): void {
    const { _events: events, _clock: clock } = this;
    const link: Link = { transport, target: events.session, dialect: undefined, paused: false };
    this._link = link;
    /** In order; what is yet to be read holds up what follows it. */
    const arrived: (Decoded | Promise<Decoded>)[] = [];
    let over: TransportEnd | undefined;

    /** Hand on what has arrived, until something has to be waited for. */
    const frame = (next?: Decoded | Promise<Decoded>): void => {
      if (next) arrived.push(next);
      while (this._link === link && !link.paused) {
        const read = arrived[0];
        if (!read) {
          if (over) this._end(over);
          return;
        }
        if (read instanceof Promise) {
          wait(read);
        } else if (isWelcome(read) && !this._Dialect && needsDialect(read)) {
          wait(
            PARTS.plain().then(({ PlainDialect }) => {
              this._Dialect = PlainDialect;
              return read;
            }),
          );
        } else {
          arrived.shift();
          if (read instanceof Malformed) {
            events.malformed(read.reason);
          } else if (read instanceof Unknown) {
            const type = JSON.stringify(read.type);
            this._logger.debug?.(`A frame of unknown type ${type} was ignored.`);
          } else {
            if (isWelcome(read)) this._choose(link, needsDialect(read));
            link.target.receive(read, clock.wallMs());
          }
          if (!isMessage(read) || this._outgoing.length) events.handled();
          if (this._crowded) giveWay();
        }
      }
    };
    const resume = (): void => {
      link.paused = false;
      frame();
    };
    /** Let the program run before the next frame. */
    const giveWay = (): void => {
      this._crowded = false;
      events.handled();
      link.paused = true;
      clock.callSoon(resume);
    };
    /** Wait for what reads the first of the frames; without it the connection is lost. */
    const wait = (first: Promise<Decoded>): void => {
      link.paused = true;
      const fail = (): void => {
        arrived.length = 0;
        over = NOT_LOADED;
        transport.close();
        resume();
      };
      const timer = clock.callLater(LOAD_TIMEOUT, fail);
      first
        .then((read) => {
          arrived[0] = read;
        }, fail)
        .then(() => {
          timer.cancel();
          resume();
        });
    };

    transport.open({
      opened: () => {
        if (this._link === link) events.opened(transport.incremental);
      },
      frame,
      ended: (end) => {
        over = end;
        frame();
      },
    });
  }

  private _end(end: TransportEnd): void {
    this._link = undefined;
    this._outgoing = [];
    this._events.dropped(end);
  }

  /** The dialect that the server needs, or none. */
  private _choose(link: Link, needed: boolean): void {
    const { session } = this._events;
    const { _Dialect: Dialect } = this;
    if (!needed || !Dialect) {
      link.dialect = undefined;
      session.subscriptions.cursors = BY_SEQ;
    } else {
      const write = (frame: ClientFrame): void => void this._outgoing.push(frame);
      link.dialect ??= new Dialect(session, write);
    }
    link.target = link.dialect ?? session;
  }
}

function isWelcome(read: Decoded): read is Extract<ServerFrame, { readonly type: 'auth.ok' }> {
  return !(read instanceof Unknown) && 'type' in read && read.type === 'auth.ok';
}

function isMessage(read: Decoded): boolean {
  return 'type' in read && read.type === 'message';
}
