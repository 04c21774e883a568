/** The subscriptions of topics, by their patterns. */

import { isWildcard, matches } from '../topics.js';
import type { SubscriptionState } from './subscription_state.js';

/** Maximum topics with remembered subscriptions; others are looked up each time. */
const KNOWN_TOPICS = 4_096;

/** Subscriptions by pattern and topic. */
export class Routes {
  /** The subscriptions of each pattern. */
  readonly byPattern: Map<string, Set<SubscriptionState>> = new Map();
  /** Cached results of `find` by topic, until a subscription changes. */
  readonly known: Map<string, readonly SubscriptionState[]> = new Map();
  private readonly _wildcards = new Set<string>();

  /** Route the patterns of a subscription to it. */
  add(state: SubscriptionState): void {
    for (const pattern of state.patterns) {
      this.byPattern.set(pattern, (this.byPattern.get(pattern) ?? new Set()).add(state));
      if (isWildcard(pattern)) this._wildcards.add(pattern);
    }
    this.known.clear();
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
      this.known.clear();
    }
  }

  /** The patterns that match a topic. */
  matching(topic: string): string[] {
    return [topic, ...this._wildcards].filter(
      (pattern) => this.byPattern.has(pattern) && matches(pattern, topic),
    );
  }

  /** The subscriptions of a topic, each once, oldest first. */
  find(topic: string): readonly SubscriptionState[] {
    const known = this.known.get(topic);
    if (known) return known;
    if (this.known.size >= KNOWN_TOPICS) this.known.clear();
    const found = this.matching(topic).flatMap((pattern) => [
      ...(this.byPattern.get(pattern) as Set<SubscriptionState>),
    ]);
    const sorted = [...new Set(found)].sort((a, b) => a.request.sub - b.request.sub);
    this.known.set(topic, sorted);
    return sorted;
  }
}
