/**
 * One subscription inside a session: its patterns, its cursor, and how far the server has answered.
 *
 * It is pending (not asked for on this connection), joining (asked and not answered: matching live
 * messages are held), or live.
 */

import type { Denial, Envelope, SubscribedFrame } from '../generated/wire.js';
import { matches } from '../topics.js';
import type { Cursor } from './cursor.js';
import type { Subscribe } from './events.js';

export type Phase = 'pending' | 'joining' | 'live';

/** One subscription of the user. */
export class Join {
  /** The patterns in force. */
  _patterns: readonly string[];
  _phase: Phase = 'pending';
  /** The `ref` of the request that is to be answered. */
  _ask = '';
  /** The server has answered once. */
  _answered = false;
  /** Something of it was refused for now. */
  _again = false;
  /** What was refused for now leads here no more, until it is asked for again. */
  _unrouted = false;
  /** The user is not told of the answer: it was asked for only to heal. */
  _quiet = false;
  _denied: Denial[] = [];
  /** What has come of an answer in several frames. */
  _answer: SubscribedFrame | undefined;
  _held: Envelope[] = [];
  /** Nothing was held and thrown away. */
  _whole = true;
  /** How many messages without a position were thrown away, by topic. */
  _lost: Map<string, number> = new Map();
  /** Times that an `error` may have been about a publish instead. */
  _doubts = 0;

  constructor(
    readonly _event: Subscribe,
    public _cursor: Cursor,
  ) {
    this._patterns = _event.topics;
  }

  /** Hold these messages and nothing else. */
  _hold(messages: Envelope[] = []): void {
    this._held = messages;
    this._lost = new Map();
    this._whole = true;
  }

  /** The connection is gone: what was held and not replayed would make the mark jump. */
  _forget(): void {
    this._phase = 'pending';
    this._ask = '';
    this._hold();
    this._cursor._healed.clear();
    this._quiet = this._again = false;
    this._doubts = 0;
    this._answer = undefined;
  }

  /** Whether a pattern in force takes the topic. */
  _takes(topic: string): boolean {
    return this._patterns.some((pattern) => matches(pattern, topic));
  }
}
