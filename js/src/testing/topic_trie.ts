/**
 * Finds the values of all patterns that match a topic; efficient for the many patterns of a server.
 */

class Node<V> {
  readonly children = new Map<string, Node<V>>();
  readonly values = new Set<V>();
}

/**
 * Maps patterns to values, and finds them by topic.
 *
 * Patterns share a tree with one level per segment, and a lookup walks all of them at once. It
 * compares a segment only with the nodes that still match, so patterns that don't match cost
 * nothing. A node is in the set at most once, however it was reached, so `**.**.**` cannot cause
 * exponential work.
 */
export class TopicTrie<V> {
  private readonly _root = new Node<V>();

  /** Add `value` under `pattern`; returns false if it is there already. */
  insert(pattern: string, value: V): boolean {
    let node = this._root;
    for (const segment of pattern.split('.')) {
      const child = node.children.get(segment) ?? new Node();
      node.children.set(segment, child);
      node = child;
    }
    const { size } = node.values;
    return node.values.add(value).size > size;
  }

  /** Remove `value` from `pattern`; returns false if it is not there. */
  remove(pattern: string, value: V): boolean {
    return this._remove(this._root, pattern.split('.'), value);
  }

  private _remove(node: Node<V>, [segment, ...others]: readonly string[], value: V): boolean {
    if (segment === undefined) return node.values.delete(value);
    const child = node.children.get(segment);
    const removed = child !== undefined && this._remove(child, others, value);
    if (removed && !child.values.size && !child.children.size) node.children.delete(segment);
    return removed;
  }

  /**
   * The values of every pattern that matches `topic`, each once.
   *
   * The order depends only on the patterns and the order of insertion.
   */
  match(topic: string): V[] {
    let alive = new Map([[this._root, '']]);
    for (const segment of topic.split('.')) {
      const following: typeof alive = new Map();
      for (const [node, reached] of alive) {
        if (reached === '**') following.set(node, reached);
        for (const key of [segment, '*', '**']) {
          const child = node.children.get(key);
          if (child) following.set(child, key);
        }
      }
      alive = following;
    }
    return [...new Set([...alive.keys()].flatMap(({ values }) => [...values]))];
  }
}
