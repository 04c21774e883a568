/**
 * Names of topics, patterns of subscriptions, and which pattern takes which topic.
 *
 * HIP-56 Topics, Wildcard Subscriptions, Security 8; H-149.
 */

import { InvalidTopic } from './errors.js';

/** Bytes of a topic or pattern; all its characters are ASCII. */
export const MAX_TOPIC = 255;

const NAME = /^[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*$/;
const PATTERN = /^(?:[a-zA-Z0-9_-]+|\*\*?)(?:\.(?:[a-zA-Z0-9_-]+|\*\*?))*$/;
const FOREIGN = /[^a-zA-Z0-9_.*-]/u;
const SHOWN = 80;

/**
 * Check the name of a topic, as one publishes to; returns it.
 *
 * @throws InvalidTopic It is empty, over 255 bytes, has an empty segment, a wildcard or a character
 *   other than letters, digits, `_`, `-` and `.`; the message names it and its place.
 */
export function validateTopic(name: unknown): string {
  return checked(name, NAME, 'topic');
}

/**
 * Check a pattern, as one subscribes to: a topic in which whole segments may be `*` or `**`.
 *
 * @throws InvalidTopic As for `validateTopic`, or `*` is a part of a segment.
 */
export function validatePattern(pattern: unknown): string {
  return checked(pattern, PATTERN, 'pattern');
}

/** Whether a value is the name of a topic. */
export function isTopic(name: unknown): name is string {
  return typeof name === 'string' && name.length <= MAX_TOPIC && NAME.test(name);
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

function checked(name: unknown, form: RegExp, kind: 'topic' | 'pattern'): string {
  if (typeof name === 'string' && name.length <= MAX_TOPIC && form.test(name)) return name;
  throw invalid(name, kind);
}

function invalid(name: unknown, kind: 'topic' | 'pattern'): InvalidTopic {
  if (typeof name !== 'string') {
    return new InvalidTopic(`A ${kind} is a string, not ${name === null ? 'null' : typeof name}.`);
  }
  const points = Array.from(name.slice(0, 2 * MAX_TOPIC));
  const shown = points.length <= SHOWN ? name : `${points.slice(0, SHOWN).join('')}…`;
  const [problem, remedy] = diagnose(name, kind);
  return new InvalidTopic(`The ${kind} ${ascii(shown)} ${problem}.`, {
    remedy,
    topic: points.slice(0, MAX_TOPIC).join(''),
  });
}

function diagnose(name: string, kind: 'topic' | 'pattern'): [problem: string, remedy?: string] {
  if (name === '') return ['is empty'];
  const foreign = FOREIGN.exec(name);
  if (foreign) return [`has ${ascii(foreign[0])} as character ${foreign.index + 1}`];
  if (name.length > MAX_TOPIC) {
    return [`has ${name.length} bytes`, `Use at most ${MAX_TOPIC} bytes.`];
  }
  let at = 1;
  for (const segment of name.split('.')) {
    if (segment === '') {
      return [
        `has an empty segment at character ${at}`,
        'Put one or more characters before, between and after dots.',
      ];
    }
    const star = segment.indexOf('*');
    if (star >= 0 && kind === 'topic') {
      return [
        `has the wildcard '*' as character ${at + star}`,
        'Publish to one topic by its full name; `*` and `**` are for subscriptions.',
      ];
    }
    if (star >= 0 && segment !== '*' && segment !== '**') {
      return [
        `mixes '*' at character ${at + star} with others in one segment`,
        'Let `*` (one segment) or `**` (one or more) be a whole segment.',
      ];
    }
    at += segment.length + 1;
  }
  return ['is not valid'];
}

/** In quotes, with escapes for all that is not printable ASCII. */
function ascii(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[^ -~]|[\\'"]/gu, (found) => {
    if (found === '"' || found === "'") return found === quote ? `\\${found}` : found;
    const named = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }[found];
    if (named) return named;
    const hex = (found.codePointAt(0) ?? 0).toString(16);
    if (hex.length <= 2) return `\\x${hex.padStart(2, '0')}`;
    return hex.length <= 4 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
  });
  return quote + escaped + quote;
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
