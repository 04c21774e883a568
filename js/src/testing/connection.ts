/** One connection, as the hub has it. */

import type { TimerHandle } from '../clock.js';
import type { ServerFrame } from '../generated/wire.js';
import { matches } from '../topics.js';
import type { Identity } from './tokens.js';

/** What carries frames to a client. */
export interface Sink {
  /** Whether it is an event stream: presence comes as snapshots there. */
  readonly isStream: boolean;
  /**
   * Send a frame.
   *
   * @param frame Nothing in it is changed after that.
   * @param id Where an event stream resumes after it.
   */
  write(frame: ServerFrame, id?: string): void;
  /** Send a ping or a heartbeat. */
  ping(): void;
  /** End the connection, after what was written. */
  close(code: number, reason: string): void;
}

/** Who a connection is, and what it is subscribed to; only the hub changes it. */
export class Connection {
  identity: Identity | undefined;
  /** Identifies it; kept over a resume. */
  clientId = '';
  /** What it is subscribed to, with whether presence is heard. */
  readonly patterns: Map<string, boolean> = new Map();
  closed = false;
  /** When to announce the end of its token; infinite once announced, or without an end. */
  noticeAt: number = Number.POSITIVE_INFINITY;
  /** When it must be authenticated, and then when its token ends, by `Clock.now`. */
  deadline: number = Number.POSITIVE_INFINITY;
  /** Time when it was last heard. */
  lastHeard: number;
  /** Looks after it. */
  timer: TimerHandle | undefined;

  constructor(
    readonly sink: Sink,
    now: number,
  ) {
    this.lastHeard = now;
  }

  /** Whether one of its patterns takes a topic. */
  takes(topic: string): boolean {
    return [...this.patterns.keys()].some((pattern) => matches(pattern, topic));
  }

  /** Whether one of these was to bring presence. */
  hears(topic: string): boolean {
    return [...this.patterns].some(([pattern, loud]) => loud && matches(pattern, topic));
  }
}
