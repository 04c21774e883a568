/**
 * Names of topics, patterns of subscriptions, and which pattern takes which topic.
 *
 * HIP-56 Topics, Wildcard Subscriptions, Security 8; H-149.
 */

/** Bytes of a topic or pattern; all its characters are ASCII. */
export const MAX_TOPIC = 255;

const NAME = /^[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*$/;
const PATTERN = /^(?:[a-zA-Z0-9_-]+|\*\*?)(?:\.(?:[a-zA-Z0-9_-]+|\*\*?))*$/;

/** Whether a value is the name of a topic. */
export function isTopic(name: unknown): name is string {
  return typeof name === 'string' && name.length <= MAX_TOPIC && NAME.test(name);
}

/** Whether a value is a pattern: a topic in which whole segments may be `*` or `**`. */
export function isPattern(name: unknown): name is string {
  return typeof name === 'string' && name.length <= MAX_TOPIC && PATTERN.test(name);
}

/** Whether a valid pattern takes more than the one topic of its name. */
export function isWildcard(pattern: string): boolean {
  return pattern.includes('*');
}

/** Whether one pattern takes a topic; for many patterns use a `TopicTrie`. */
export function matches(pattern: string, topic: string): boolean {
  if (!isWildcard(pattern)) return pattern === topic;
  const trie = new TopicTrie<null>();
  trie.insert(pattern, null);
  return trie.match(topic).length > 0;
}

class Node<V> {
  readonly children = new Map<string, Node<V>>();
  readonly values = new Set<V>();

  constructor(readonly endless: boolean) {}
}

/**
 * Values by pattern, found by topic.
 *
 * A pattern without a wildcard costs one look-up. The others share a tree by segment, walked for
 * all of them at once: a segment is compared with the few nodes still alive, so what does not match
 * costs nothing, and `**.**.**` cannot blow up, as a node is alive or not, however it was reached.
 */
export class TopicTrie<V> {
  private readonly _exact = new Map<string, Set<V>>();
  private readonly _root = new Node<V>(false);
  private _size = 0;

  /** How many pairs of pattern and value there are. */
  get size(): number {
    return this._size;
  }

  /** Every pattern with each of its values. */
  *[Symbol.iterator](): IterableIterator<[pattern: string, value: V]> {
    for (const [topic, values] of this._exact) {
      for (const value of values) yield [topic, value];
    }
    const stack: [string, Node<V>][] = [['', this._root]];
    for (let top = stack.pop(); top; top = stack.pop()) {
      const [path, node] = top;
      for (const value of node.values) yield [path, value];
      for (const [segment, child] of node.children) {
        stack.push([path ? `${path}.${segment}` : segment, child]);
      }
    }
  }

  /** Let `pattern` lead to `value`; false if it already does. */
  insert(pattern: string, value: V): boolean {
    let values: Set<V> | undefined;
    if (isWildcard(pattern)) {
      let node = this._root;
      for (const segment of pattern.split('.')) {
        let child = node.children.get(segment);
        if (!child) {
          child = new Node(segment === '**');
          node.children.set(segment, child);
        }
        node = child;
      }
      values = node.values;
    } else {
      values = this._exact.get(pattern);
      if (!values) {
        values = new Set();
        this._exact.set(pattern, values);
      }
    }
    if (values.has(value)) return false;
    values.add(value);
    this._size += 1;
    return true;
  }

  /** Let `pattern` lead to `value` no more; false if it did not. */
  remove(pattern: string, value: V): boolean {
    if (!isWildcard(pattern)) {
      const values = this._exact.get(pattern);
      if (!values?.delete(value)) return false;
      if (!values.size) this._exact.delete(pattern);
      this._size -= 1;
      return true;
    }
    const path: [parent: Node<V>, segment: string, child: Node<V>][] = [];
    let node = this._root;
    for (const segment of pattern.split('.')) {
      const child = node.children.get(segment);
      if (!child) return false;
      path.push([node, segment, child]);
      node = child;
    }
    if (!node.values.delete(value)) return false;
    this._size -= 1;
    for (const [parent, segment, child] of path.reverse()) {
      if (child.values.size || child.children.size) break;
      parent.children.delete(segment);
    }
    return true;
  }

  /**
   * The values of every pattern that takes `topic`, each once.
   *
   * The order depends on the patterns and the order of insertions alone: those of the topic's own
   * name first, then those of wildcards.
   */
  match(topic: string): V[] {
    const exact = this._exact.get(topic);
    const found = new Set<V>(exact);
    if (!this._root.children.size) return [...found];
    let alive = new Set([this._root]);
    for (const segment of topic.split('.')) {
      const following = new Set<Node<V>>();
      for (const node of alive) {
        if (node.endless) following.add(node);
        for (const key of [segment, '*', '**']) {
          const child = node.children.get(key);
          if (child) following.add(child);
        }
      }
      if (!following.size) return [...found];
      alive = following;
    }
    for (const node of alive) {
      for (const value of node.values) found.add(value);
    }
    return [...found];
  }
}
