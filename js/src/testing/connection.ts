/** One connection, as the hub sees it. */

import type { TimerHandle } from '../clock.js';
import type { ServerFrame } from '../generated/wire.js';
import { matches } from '../topics.js';
import type { Identity } from './tokens.js';

/** Sends frames to a client. */
export interface Sink {
  /** Whether it is an event stream, which receives presence as snapshots. */
  readonly isStream: boolean;
  /**
   * Send a frame.
   *
   * @param frame The frame; the caller does not change it afterwards.
   * @param id The event id, from which an event stream resumes after this frame.
   */
  write(frame: ServerFrame, id?: string): void;
  /** Send a ping or a heartbeat. */
  ping(): void;
  /** Close the connection after everything that was written has been sent. */
  close(code: number, reason: string): void;
}

/** Identity and subscriptions of a connection; only the hub changes them. */
export class Connection {
  identity: Identity | undefined;
  /** Client id, which stays the same when the session resumes. */
  clientId = '';
  /** The subscribed patterns, each with whether it includes presence. */
  readonly patterns: Map<string, boolean> = new Map();
  closed = false;
  /**
   * Time of the `auth.expiring` notice; infinite after it was sent, or for a token without an
   * expiry.
   */
  noticeAt: number = Number.POSITIVE_INFINITY;
  /** Before authentication its deadline, then the expiry of the token, by `Clock.now`. */
  deadline: number = Number.POSITIVE_INFINITY;
  /** When data last arrived from the client, by `Clock.now`. */
  lastReceived: number;
  /** The next check of the connection. */
  timer: TimerHandle | undefined;

  constructor(
    readonly sink: Sink,
    now: number,
  ) {
    this.lastReceived = now;
  }

  /** Whether one of its patterns matches a topic. */
  takes(topic: string): boolean {
    return [...this.patterns.keys()].some((pattern) => matches(pattern, topic));
  }

  /** Whether one of its patterns that matches a topic includes presence. */
  takesPresence(topic: string): boolean {
    return [...this.patterns].some(([pattern, loud]) => loud && matches(pattern, topic));
  }
}
