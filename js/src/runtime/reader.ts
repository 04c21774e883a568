/** The transport of a client: dials, reads, hangs up; one at a time. */

import type { Clock } from '../clock.js';
import type { ClientFrame, ServerFrame } from '../generated/wire.js';
import type { TransportName } from '../session/effects.js';
import type { Transport, TransportEnd } from '../transports/transport.js';
import type { Logger } from '../values.js';
import { type Decoded, Malformed, Unknown } from '../wire/codec.js';

/** Milliseconds to wait for a part of the client that a frame needs. */
const LOAD_TIMEOUT = 10_000;
const NOT_LOADED: TransportEnd = {
  code: undefined,
  reason: 'A part of the client did not load.',
};

/** What the driver does with what was read. */
export interface Reading {
  /** Handle one frame that came at this time, Unix ms. */
  receive(frame: ServerFrame, at: number): void;
  /** Something that is no frame was left out, for this reason. */
  malformed(reason: string): void;
  /** The transport is open. */
  opened(incremental: boolean): void;
  /** It is gone, or did not open. */
  dropped(end: TransportEnd): void;
}

interface Link {
  readonly transport: Transport;
  /** In order; what is yet to be read holds up what follows it. */
  readonly arrived: (Decoded | Promise<Decoded>)[];
  /** The program gets a turn, or a part of the client is loaded, before the frames that wait. */
  paused: boolean;
  over: TransportEnd | undefined;
}

/** Makes a transport that is not open yet. */
export type DialTransport = (name: TransportName) => Transport | Promise<Transport>;

/** Owns the transport of the present connection. */
export class Reader {
  private _outgoing: ClientFrame[] = [];
  private _link: Link | undefined;
  private _dialing = 0;
  private _crowded = false;

  /**
   * @param _reading Gets what is read.
   * @param _dial Makes a transport that is not open yet.
   * @param _clock Time.
   * @param _logger Told of frames of a later version.
   */
  constructor(
    private readonly _reading: Reading,
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

  /** Have a frame sent with the next `flush`. */
  send(frame: ClientFrame): void {
    this._outgoing.push(frame);
  }

  /** Hand the frames to the transport, together. */
  flush(): void {
    if (!this._outgoing.length || !this._link) return;
    const frames = this._outgoing;
    this._outgoing = [];
    this._link.transport.send(frames);
  }

  /** After the frame at hand, let the program run: an inbox is full. */
  giveWay(): void {
    this._crowded = true;
  }

  /** Open a transport and read it. */
  dial(name: TransportName): void {
    this._dialing += 1;
    const number = this._dialing;
    const made = this._dial(name);
    if (!(made instanceof Promise)) {
      this._open(made);
      return;
    }
    made.then(
      (transport) => {
        if (number === this._dialing) this._open(transport);
      },
      () => {
        if (number !== this._dialing) return;
        this._reading.dropped(NOT_LOADED);
      },
    );
  }

  /** Close it, or give up opening it; nothing of it is reported after that. */
  hangUp(code: number): void {
    this.flush();
    this._outgoing = [];
    this._dialing += 1;
    const link = this._link;
    this._link = undefined;
    link?.transport.close(code);
  }

  // ---------------------------------------------------------------- inside

  private _open(transport: Transport): void {
    const link: Link = { transport, arrived: [], paused: false, over: undefined };
    this._link = link;
    transport.open({
      opened: () => {
        if (this._link === link) this._reading.opened(transport.incremental);
      },
      frame: (read) => {
        link.arrived.push(read);
        this._take(link);
      },
      ended: (end) => {
        link.over = end;
        this._take(link);
      },
    });
  }

  private _take(link: Link): void {
    if (link.paused) return;
    const { arrived } = link;
    const at = this._clock.wallMs();
    let taken = 0;
    for (; taken < arrived.length && !link.paused; taken += 1) {
      if (this._link !== link) return;
      const read = arrived[taken];
      if (read instanceof Promise) {
        this._wait(link, read);
        break;
      }
      this._receive(read as Decoded, at);
      if (this._crowded) {
        this._crowded = false;
        link.paused = true;
        this._clock.callSoon(() => this._resume(link));
      }
    }
    if (taken > 1) arrived.splice(0, taken);
    else if (taken) arrived.shift();
    this.flush();
    if (link.over && !arrived.length && !link.paused && this._link === link) {
      this._link = undefined;
      this._outgoing = [];
      this._reading.dropped(link.over);
    }
  }

  private _receive(read: Decoded, at: number): void {
    if (read instanceof Malformed) {
      this._reading.malformed(read.reason);
    } else if (read instanceof Unknown) {
      this._logger.debug?.(`A frame of unknown type ${JSON.stringify(read.type)} was ignored.`);
    } else {
      this._reading.receive(read, at);
    }
  }

  /** Wait for what reads the first of the frames that wait; without it the connection is lost. */
  private _wait(link: Link, first: Promise<Decoded>): void {
    link.paused = true;
    const fail = (): void => {
      link.arrived.length = 0;
      link.over = NOT_LOADED;
      link.transport.close();
      this._resume(link);
    };
    const timer = this._clock.callLater(LOAD_TIMEOUT, fail);
    first
      .then((read) => {
        link.arrived[0] = read;
      }, fail)
      .then(() => {
        timer.cancel();
        this._resume(link);
      });
  }

  private _resume(link: Link): void {
    link.paused = false;
    this._take(link);
  }
}
