import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { InvalidTopic } from '../../js/src/errors.js';
import { TopicTrie } from '../../js/src/testing/topic_trie.js';
import { isTopic, isWildcard, matches } from '../../js/src/topics.js';
import { validatePattern, validateTopic } from '../../js/src/validate.js';
import { load } from './files.js';

interface Topics {
  readonly topics: readonly { topic: string; valid: boolean; why: string }[];
  readonly patterns: readonly { pattern: string; valid: boolean; why: string }[];
  readonly matches: readonly { pattern: string; topic: string; matches: boolean; why: string }[];
}

const spec = load<Topics>('topics.json');

function isValid(check: (name: string) => string, name: string): boolean {
  try {
    assert.equal(check(name), name);
    return true;
  } catch (error) {
    assert.ok(error instanceof InvalidTopic);
    assert.match(error.message, /^[ -~…]+$/);
    return false;
  }
}

/** By the number of segments that `**` matches. */
function plainly(pattern: readonly string[], topic: readonly string[]): boolean {
  const [first, ...rest] = pattern;
  if (first === undefined) return topic.length === 0;
  if (first === '**') return topic.some((_, n) => plainly(rest, topic.slice(n + 1)));
  return topic.length > 0 && [topic[0], '*'].includes(first) && plainly(rest, topic.slice(1));
}

describe('a name is valid as specified', () => {
  for (const { topic, valid, why } of spec.topics) {
    test(why, () => assert.equal(isValid(validateTopic, topic), valid));
  }
});

test('a name has the same validity each time it is checked', () => {
  const names = ['a.b', 'a.b', 'a..b', 'a..b', 'a.b', '', ''];
  assert.deepEqual(names.map(isTopic), [true, true, false, false, true, false, false]);
});

describe('a pattern is valid as specified', () => {
  for (const { pattern, valid, why } of spec.patterns) {
    test(why, () => assert.equal(isValid(validatePattern, pattern), valid));
  }
});

describe('a pattern matches as specified', () => {
  for (const { pattern, topic, matches: expected, why } of spec.matches) {
    test(why, () => assert.equal(matches(pattern, topic), expected));
  }
});

test('the error for an invalid topic has the problem and its position, in the same words in every SDK', () => {
  const text = (name: unknown) => {
    try {
      return validateTopic(name);
    } catch (error) {
      assert.ok(error instanceof InvalidTopic);
      assert.ok(error.remedy);
      return error.message;
    }
  };
  assert.equal(text(''), "The topic '' is empty.");
  assert.equal(text('a..b'), "The topic 'a..b' has an empty segment at character 3.");
  assert.equal(text('ä'), "The topic '\\xe4' has '\\xe4' at character 1.");
  assert.equal(text('a.\n'), "The topic 'a.\\n' has '\\n' at character 3.");
  assert.equal(text("a'b"), 'The topic "a\'b" has "\'" at character 2.');
  assert.equal(text('😀'), "The topic '\\U0001f600' has '\\U0001f600' at character 1.");
  assert.equal(text('a.b*'), "The topic 'a.b*' has the wildcard '*' at character 4.");
  assert.match(text('a'.repeat(256)), /'a{80}\\u2026' has 256 bytes\.$/);
  assert.equal(text(7), 'A topic is a string, not number.');
  assert.equal(text(null), 'A topic is a string, not null.');
});

test('a pattern instead of a topic is refused with its purpose, whatever the operation', () => {
  const remedy = 'Use the full name of one topic; `*` and `**` are for subscriptions.';
  assert.throws(() => validateTopic('a.*'), { code: 'invalid_topic', remedy });
});

test('a wildcard is a whole segment', () => {
  for (const pattern of ['a*', '*a', 'a.***', 'a.b**.c']) {
    assert.throws(() => validatePattern(pattern), /mixes/);
  }
  for (const pattern of ['*', '**', 'a.**.b', '**.**']) assert.ok(isWildcard(pattern));
  assert.ok(!isWildcard('a.b'));
});

test('names of prototype members are ordinary topics', () => {
  const trie = new TopicTrie<string>();
  for (const name of ['constructor', '__proto__', 'toString.valueOf']) {
    assert.deepEqual(trie.match(name), []);
    assert.ok(trie.insert(name, name));
    assert.ok(trie.insert(`${name}.*`, name));
    assert.deepEqual(trie.match(name), [name]);
    assert.deepEqual(trie.match(`${name}.x`), [name]);
  }
});

test('a trie finds each value of a matching pattern once, after any insertions and removals', () => {
  let seed = 1;
  const below = (n: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 16) % n;
  };
  const path = (words: readonly string[]) =>
    Array.from({ length: 1 + below(5) }, () => words[below(words.length)] ?? '').join('.');
  for (let round = 0; round < 300; round += 1) {
    const trie = new TopicTrie<number>();
    const model = new Set<string>();
    for (let n = below(40); n > 0; n -= 1) {
      const pattern = path(['a', 'b', '*', '**']);
      const value = below(3);
      const key = `${pattern} ${value}`;
      if (below(3)) {
        assert.equal(trie.insert(pattern, value), !model.has(key));
        model.add(key);
      } else {
        assert.equal(trie.remove(pattern, value), model.delete(key));
      }
    }
    for (const key of model) {
      const [pattern = '', value] = key.split(' ');
      assert.equal(trie.insert(pattern, Number(value)), false);
    }
    const topic = path(['a', 'b']);
    const expected = [...model]
      .map((key) => key.split(' '))
      .filter(([pattern]) => plainly((pattern ?? '').split('.'), topic.split('.')))
      .map(([, value]) => Number(value));
    assert.deepEqual(trie.match(topic).sort(), [...new Set(expected)].sort());
  }
});

test('values are in the order of insertion', () => {
  const trie = new TopicTrie<string>();
  for (const value of ['third', 'first', 'second']) {
    trie.insert('a.b', value);
    trie.insert('a.*', `${value}*`);
  }
  const found = ['third', 'first', 'second', 'third*', 'first*', 'second*'];
  assert.deepEqual(trie.match('a.b'), found);
});

/** All lists of up to `most` of these segments. */
function lists(segments: readonly string[], most: number): string[][] {
  if (!most) return [[]];
  const shorter = lists(segments, most - 1);
  return [[], ...shorter.flatMap((list) => segments.map((one) => [...list, one]))];
}

/** Whether a pattern matches, as HIP-56 defines it. */
function defined([one, ...more]: readonly string[], [first, ...rest]: readonly string[]): boolean {
  if (one === undefined || first === undefined) return one === first;
  if (one === '**' && defined([one, ...more], rest)) return true;
  return (one === first || one.startsWith('*')) && defined(more, rest);
}

test('all short patterns match the topics that HIP-56 defines', () => {
  const topics = lists(['a', 'b'], 5).filter(({ length }) => length);
  for (const pattern of lists(['a', 'b', '*', '**'], 4).filter(({ length }) => length)) {
    const found = topics.filter((topic) => matches(pattern.join('.'), topic.join('.')));
    const expected = topics.filter((topic) => defined(pattern, topic));
    assert.deepEqual(found, expected, pattern.join('.'));
  }
});

test('a topic that differs before the first wildcard costs one comparison', (context) => {
  const split = context.mock.method(String.prototype, 'split');
  for (const pattern of ['b.**', 'a.c.*', 'a.b.d', 'a.b.c.d.**']) {
    assert.equal(matches(pattern, 'a.b.c'), false);
  }
  assert.ok(!split.mock.calls.some(({ arguments: [separator] }) => String(separator) === '.'));
});

test('many double wildcards do not cause exponential work', () => {
  const trie = new TopicTrie<number>();
  trie.insert(Array(60).fill('**').join('.'), 1);
  trie.insert(Array(30).fill('**.a').join('.'), 2);
  assert.deepEqual(trie.match(Array(120).fill('a').join('.')).sort(), [1, 2]);
});
