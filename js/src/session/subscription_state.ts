/**
 * One subscription inside a session: its patterns, its cursor, and the state of its request.
 *
 * It is pending (not requested on this connection), joining (requested but not answered: matching
 * live messages are held), or live.
 */

import type { Denial } from '../generated/wire.js';
import { type Cursor, Replay, type Step } from './cursor.js';
import type { Subscribe } from './requests.js';

export type Phase = 'pending' | 'joining' | 'live';

/** One subscription of the program. */
export class SubscriptionState {
  /** The active patterns. */
  patterns: readonly string[];
  phase: Phase = 'pending';
  /** The `ref` of the open request. */
  ref = '';
  /** The server has answered at least once. */
  answered = false;
  /** The server rejected a part of it temporarily. */
  retryPending = false;
  /** The program knows the answer on this connection: another request only recovers messages. */
  reported = false;
  /** Patterns denied by earlier answers, for the next report. */
  denied: Denial[] = [];
  /**
   * Gaps that begin with a change of the peer, and the steps of an answer. These gaps are reported
   * with the next answer: what is published until then may be missing, too.
   */
  _steps: Step[] = [];
  /** What has arrived for the open request. */
  _replay: Replay = new Replay();

  constructor(
    /** What the program requested; after a change of the peer, what follows the newest message. */
    public request: Subscribe,
    public cursor: Cursor,
  ) {
    this.patterns = request.topics;
  }

  /** The connection is lost: held messages without their replay would move the cursor too far. */
  forget(): void {
    this.phase = 'pending';
    this._replay = new Replay();
    this.cursor.retried.clear();
    this.reported = false;
  }

  /** Requested maximum per topic; undefined after the first answer. */
  get limit(): number | undefined {
    return this.answered ? undefined : this.request.history;
  }
}
