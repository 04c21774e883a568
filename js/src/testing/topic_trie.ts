/** Values by pattern, found by topic: for the many patterns of a server. */

class Node<V> {
  readonly children = new Map<string, Node<V>>();
  readonly values = new Set<V>();
}

/**
 * Values by pattern, found by topic.
 *
 * Patterns share a tree by segment, walked for all of them at once: a segment is compared with the
 * few nodes still alive, so what does not match costs nothing, and `**.**.**` cannot blow up, as a
 * node is alive or not, however it was reached.
 */
export class TopicTrie<V> {
  private readonly _root = new Node<V>();

  /** Let `pattern` lead to `value`; false if it already does. */
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

  /** Let `pattern` lead to `value` no more; false if it did not. */
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
   * The values of every pattern that takes `topic`, each once.
   *
   * The order depends on the patterns and the order of insertions alone.
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
