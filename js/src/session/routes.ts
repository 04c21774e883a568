/** Which subscriptions of a session take a topic. */

import { TopicTrie } from '../topics.js';
import type { Join } from './join.js';

/** Topics whose subscriptions are remembered; beyond that they are looked up anew. */
const KNOWN_TOPICS = 4_096;

/** Patterns to subscriptions, by topic. */
export class Routes {
  private readonly _known = new Map<string, readonly Join[]>();
  private readonly _trie = new TopicTrie<Join>();

  /** Let the patterns of a subscription lead to it. */
  _add(join: Join): void {
    for (const pattern of join._patterns) this._trie.insert(pattern, join);
    this._known.clear();
  }

  /** Let these patterns lead there no more. */
  _remove(join: Join, patterns: readonly string[]): void {
    for (const pattern of patterns) this._trie.remove(pattern, join);
    this._known.clear();
  }

  /** The subscriptions that take a topic, each once, oldest first. */
  _find(topic: string): readonly Join[] {
    let joins = this._known.get(topic);
    if (!joins) {
      if (this._known.size >= KNOWN_TOPICS) this._known.clear();
      joins = this._trie.match(topic).sort((a, b) => a._event.sub - b._event.sub);
      this._known.set(topic, joins);
    }
    return joins;
  }
}
