/** The subscriptions of a session, by number and by their topics. */

import { isWildcard, matches } from '../topics.js';
import type { SubscriptionState } from './subscription_state.js';

/** Maximum topics with remembered subscriptions; others are looked up each time. */
const KNOWN_TOPICS = 4_096;

type Patterns = Map<string, Set<SubscriptionState>>;

/** Subscriptions by number and by their topics. */
export class Routes {
  readonly all: Map<number, SubscriptionState> = new Map();
  /** Cached results of `find` by topic, until a subscription changes. */
  readonly known: Map<string, readonly SubscriptionState[]> = new Map();
  private readonly _names: Patterns = new Map();
  private readonly _wildcards: Patterns = new Map();

  /** Route the patterns of a subscription to it. */
  add(state: SubscriptionState): void {
    for (const pattern of state.patterns) {
      const patterns = this._alike(pattern);
      patterns.set(pattern, (patterns.get(pattern) ?? new Set()).add(state));
    }
    this.known.clear();
  }

  /** Stop routing these patterns to it. */
  remove(state: SubscriptionState, patterns: readonly string[]): void {
    for (const pattern of patterns) {
      const alike = this._alike(pattern);
      alike.get(pattern)?.delete(state);
      if (!alike.get(pattern)?.size) alike.delete(pattern);
    }
    this.known.clear();
  }

  /** The subscriptions of a topic, each once, oldest first. */
  find(topic: string): readonly SubscriptionState[] {
    const known = this.known.get(topic);
    if (known) return known;
    if (this.known.size >= KNOWN_TOPICS) this.known.clear();
    const found = new Set(this._names.get(topic));
    for (const [pattern, subscriptions] of this._wildcards) {
      if (matches(pattern, topic)) for (const state of subscriptions) found.add(state);
    }
    const sorted = [...found].sort((a, b) => a.request.sub - b.request.sub);
    this.known.set(topic, sorted);
    return sorted;
  }

  private _alike(pattern: string): Patterns {
    return isWildcard(pattern) ? this._wildcards : this._names;
  }
}
