/** Which subscriptions of a session take a topic. */

import { TopicTrie } from '../topics.js';
import type { Join } from './join.js';

/** Topics whose subscriptions are remembered; beyond that they are looked up anew. */
const KNOWN_TOPICS = 4_096;

/** Patterns to subscriptions, by topic. */
export class Routes {
  private readonly _known = new Map<string, readonly Join[]>();
  private readonly _trie = new TopicTrie<Join>();

  /** How many pairs of pattern and subscription there are. */
  get size(): number {
    return this._trie.size;
  }

  /** Let the patterns of a subscription lead to it. */
  add(join: Join): void {
    for (const pattern of join.patterns) this._trie.insert(pattern, join);
    this._known.clear();
  }

  /** Let one pattern lead there no more. */
  remove(pattern: string, join: Join): void {
    this._trie.remove(pattern, join);
    this._known.clear();
  }

  /** The subscriptions that take a topic, each once, oldest first. */
  find(topic: string): readonly Join[] {
    let joins = this._known.get(topic);
    if (!joins) {
      if (this._known.size >= KNOWN_TOPICS) this._known.clear();
      joins = this._trie.match(topic).sort((a, b) => a.sub - b.sub);
      this._known.set(topic, joins);
    }
    return joins;
  }
}
