/** The transport of a client: dials, reads, hangs up; one at a time. */

import type { Clock } from '../clock.js';
import type { ClientFrame, ServerFrame } from '../generated/wire.js';
import type { TransportName } from '../session/effects.js';
import type { Transport, TransportEnd } from '../transports/transport.js';

/** What the driver does with what was read. */
export interface Reading {
  /** Handle one frame that came at this time, Unix ms. */
  receive(frame: ServerFrame, at: number): void;
  /** The transport is open. */
  opened(incremental: boolean): void;
  /** It is gone, or did not open. */
  dropped(end: TransportEnd): void;
}

interface Link {
  readonly transport: Transport;
  readonly arrived: ServerFrame[];
  /** The program gets a turn before the frames that wait. */
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
   */
  constructor(
    private readonly _reading: Reading,
    private readonly _dial: DialTransport,
    private readonly _clock: Clock,
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
        this._reading.dropped({ code: undefined, reason: 'A part of the client did not load.' });
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

  /** Whether a WebSocket can be opened beside the present transport. */
  async probe(milliseconds: number): Promise<boolean> {
    const transport = await this._dial('websocket');
    const ok = await new Promise<boolean>((resolve) => {
      const timer = this._clock.callLater(milliseconds, () => resolve(false));
      const answer = (open: boolean): void => {
        timer.cancel();
        resolve(open);
      };
      transport.open({ opened: () => answer(true), frame: () => {}, ended: () => answer(false) });
    });
    transport.close();
    return ok;
  }

  // ---------------------------------------------------------------- inside

  private _open(transport: Transport): void {
    const link: Link = { transport, arrived: [], paused: false, over: undefined };
    this._link = link;
    transport.open({
      opened: () => {
        if (this._link === link) this._reading.opened(transport.incremental);
      },
      frame: (frame) => {
        link.arrived.push(frame);
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
    const at = this._clock.wallMs();
    for (let next = 0; next < link.arrived.length; next += 1) {
      if (this._link !== link) return;
      this._reading.receive(link.arrived[next] as ServerFrame, at);
      if (this._crowded) {
        this._crowded = false;
        link.arrived.splice(0, next + 1);
        link.paused = true;
        this.flush();
        this._clock.callSoon(() => {
          link.paused = false;
          this._take(link);
        });
        return;
      }
    }
    link.arrived.length = 0;
    this.flush();
    if (link.over && this._link === link) {
      this._link = undefined;
      this._outgoing = [];
      this._reading.dropped(link.over);
    }
  }
}
