/**
 * One subscription inside a session: its patterns, its cursor, and how far the server has answered.
 *
 * It is pending (not asked for on this connection), joining (asked and not answered: matching live
 * messages are held), or live.
 */

import type { Denial, Envelope, SubscribedFrame } from '../generated/wire.js';
import { matches } from '../topics.js';
import type { Cursor } from './cursor.js';
import type { Subscribe } from './requests.js';

export type Phase = 'pending' | 'joining' | 'live';

/** One subscription of the program. */
export class SubscriptionState {
  /** The patterns in force. */
  patterns: readonly string[];
  phase: Phase = 'pending';
  /** The `ref` of the request that is to be answered. */
  ref = '';
  /** The server has answered once. */
  answered = false;
  /** Something of it was refused for now. */
  again = false;
  /** What was refused for now leads here no more, until it is asked for again. */
  unrouted = false;
  /** The program does not hear of the answer: the request only heals. */
  quiet = false;
  denied: Denial[] = [];
  /** What has come of an answer in several frames. */
  answer: SubscribedFrame | undefined;
  held: Envelope[] = [];
  /** No held message was thrown away. */
  whole = true;
  /** How many messages without a position were thrown away, by topic. */
  lost: Map<string, number> = new Map();

  constructor(
    readonly request: Subscribe,
    public cursor: Cursor,
  ) {
    this.patterns = request.topics;
  }

  /** Hold these messages and nothing else. */
  hold(messages: Envelope[] = []): void {
    this.held = messages;
    this.lost = new Map();
    this.whole = true;
  }

  /** The connection is gone: what was held and not replayed would make the mark jump. */
  forget(): void {
    this.phase = 'pending';
    this.ref = '';
    this.hold();
    this.cursor.healed.clear();
    this.quiet = this.again = false;
    this.answer = undefined;
  }

  /** Whether a pattern in force takes the topic. */
  takes(topic: string): boolean {
    return this.patterns.some((pattern) => matches(pattern, topic));
  }
}
