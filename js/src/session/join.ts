/**
 * One subscription inside a session: its patterns, its cursor, and how far the server has answered.
 *
 * It is pending (not asked for on this connection), joining (asked and not answered: matching live
 * messages are held), or live.
 */

import type { Denial, Envelope } from '../generated/wire.js';
import { matches } from '../topics.js';
import type { Cursor } from './cursor.js';
import type { Subscribe } from './events.js';

export type Phase = 'pending' | 'joining' | 'live';

/** One subscription of the user. */
export class Join {
  readonly sub: number;
  readonly patterns: string[];
  phase: Phase = 'pending';
  ask = '';
  answered = false;
  again = false;
  quiet = false;
  doubts = 0;
  denied: Denial[] = [];
  lost: Map<string, number> = new Map();
  held: Envelope[] = [];
  healed: Map<string, number> = new Map();
  whole = true;
  history: Envelope[] = [];
  positions: Map<string, number> = new Map();
  truncated: Set<string> = new Set();
  reset: Set<string> = new Set();
  timestamp: number | undefined;

  constructor(
    readonly event: Subscribe,
    public cursor: Cursor,
  ) {
    this.sub = event.sub;
    this.patterns = [...event.topics];
  }

  /** Whether presence is wanted. */
  get presence(): boolean {
    return this.event.presence ?? false;
  }

  /** Forget what has come of an answer that is not complete. */
  clearAnswer(): void {
    this.history = [];
    this.positions = new Map();
    this.truncated = new Set();
    this.reset = new Set();
    this.timestamp = undefined;
  }

  /** Forget what was held. */
  clearHeld(): void {
    this.held = [];
    this.lost = new Map();
    this.whole = true;
  }

  /** The connection is gone: what was held and not replayed would make the mark jump. */
  forget(): void {
    this.phase = 'pending';
    this.ask = '';
    this.clearHeld();
    this.healed = new Map();
    this.quiet = this.again = false;
    this.doubts = 0;
    this.clearAnswer();
  }

  /** Whether a pattern in force takes the topic. */
  takes(topic: string): boolean {
    return this.patterns.some((pattern) => matches(pattern, topic));
  }
}
