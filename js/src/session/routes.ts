/** One subscription, and the subscriptions of topics, by their patterns. */

import type { Denial } from '../generated/wire.js';
import { isWildcard, matches } from '../topics.js';
import { type Cursor, Replay, type Step } from './cursor.js';
import type { Subscribe } from './ports.js';

/** Maximum topics with remembered subscriptions; others are looked up each time. */
const KNOWN_TOPICS = 4_096;

/**
 * One subscription of the program: its patterns, its cursor, and the state of its request.
 *
 * It is pending (not requested on this connection), joining (requested but not answered: matching
 * live messages are held), or live.
 */
export class SubscriptionState {
  /** The active patterns. */
  _patterns: readonly string[];
  phase: 'pending' | 'joining' | 'live' = 'pending';
  /** The `ref` of the open request. */
  ref = '';
  /** The server has answered at least once. */
  answered = false;
  /** The server rejected a part of it temporarily. */
  retryPending = false;
  /** The last temporary rejection of it or of a part of it; only in the development build. */
  declare refusal: Omit<Denial, 'topic'> | undefined;
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
    this._patterns = request.topics;
  }

  /** The connection is lost: held messages without their replay would move the cursor too far. */
  _forget(): void {
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

/** Subscriptions by pattern and topic. */
export class Routes {
  readonly byPattern: Map<string, Set<SubscriptionState>> = new Map();
  /** Cached results of `find` by topic, until a subscription changes. */
  readonly _known: Map<string, readonly SubscriptionState[]> = new Map();
  private readonly _wildcards = new Set<string>();

  /** Route the patterns of a subscription to it. */
  add(state: SubscriptionState): void {
    for (const pattern of state._patterns) {
      this.byPattern.set(pattern, (this.byPattern.get(pattern) ?? new Set()).add(state));
      if (isWildcard(pattern)) this._wildcards.add(pattern);
    }
    this._known.clear();
  }

  /** Stop routing these patterns to it. */
  remove(state: SubscriptionState, patterns: readonly string[]): void {
    for (const pattern of patterns) {
      const states = this.byPattern.get(pattern);
      states?.delete(state);
      if (!states?.size) {
        this.byPattern.delete(pattern);
        this._wildcards.delete(pattern);
      }
      this._known.clear();
    }
  }

  matching(topic: string): string[] {
    return [topic, ...this._wildcards].filter(
      (pattern) => this.byPattern.has(pattern) && matches(pattern, topic),
    );
  }

  /** The subscriptions of a topic, each once, oldest first. */
  find(topic: string): readonly SubscriptionState[] {
    const known = this._known.get(topic);
    if (known) return known;
    if (this._known.size >= KNOWN_TOPICS) this._known.clear();
    const found = this.matching(topic).flatMap((pattern) => [
      ...(this.byPattern.get(pattern) as Set<SubscriptionState>),
    ]);
    const sorted = [...new Set(found)].sort((a, b) => a.request.sub - b.request.sub);
    this._known.set(topic, sorted);
    return sorted;
  }
}
