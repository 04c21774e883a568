/** The subscriptions of a session, by number and by the topics that they take. */

import { TopicTrie } from '../topics.js';
import type { SubscriptionState } from './subscription_state.js';

/** Topics whose subscriptions are remembered; beyond that they are looked up again. */
const KNOWN_TOPICS = 4_096;

/** Subscriptions by number; patterns to subscriptions, by topic. */
export class Routes {
  readonly all: Map<number, SubscriptionState> = new Map();
  /** What `find` found for topics, until a subscription changes. */
  readonly known: Map<string, readonly SubscriptionState[]> = new Map();
  private readonly _trie = new TopicTrie<SubscriptionState>();

  /** Let the patterns of a subscription lead to it. */
  add(one: SubscriptionState): void {
    for (const pattern of one.patterns) this._trie.insert(pattern, one);
    this.known.clear();
  }

  /** Let these patterns lead there no more. */
  remove(one: SubscriptionState, patterns: readonly string[]): void {
    for (const pattern of patterns) this._trie.remove(pattern, one);
    this.known.clear();
  }

  /** The subscriptions that take a topic, each once, oldest first. */
  find(topic: string): readonly SubscriptionState[] {
    const known = this.known.get(topic);
    if (known) return known;
    if (this.known.size >= KNOWN_TOPICS) this.known.clear();
    const found = this._trie.match(topic).sort((a, b) => a.request.sub - b.request.sub);
    this.known.set(topic, found);
    return found;
  }
}
