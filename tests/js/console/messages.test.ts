import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Gap, Message } from '../../../js/src/index.js';
import { type Incoming, MessageBuffer } from '../../../server-mock/console/src/messages/buffer.js';
import { hasLarge, pieces, pretty } from '../../../server-mock/console/src/messages/json_text.js';
import { RowLayout } from '../../../server-mock/console/src/messages/layout.js';
import { gapText } from '../../../server-mock/console/src/messages/row.js';
import { fc } from '../properties.js';

function message(id: string, topic: string, timestamp: number): Incoming & { message: Message } {
  return { kind: 'message', message: { id, topic, timestamp, type: 't', data: 1 } as Message };
}

function gap(topic: string, from: number, to: number): Incoming & { gap: Gap } {
  const reason = 'history_trimmed';
  return { kind: 'gap', gap: { topic, from, to, missed: to - from + 1, reason } };
}

function shown({ entries }: MessageBuffer): string[] {
  return entries.map((entry) => (entry.kind === 'gap' ? `gap ${entry.topic}` : entry.message.id));
}

test('a message that two subscriptions bring is shown once', () => {
  const buffer = new MessageBuffer(10);
  buffer.add([message('a', 't', 1), message('a', 't', 1)]);
  buffer.add([message('a', 't', 1), message('b', 't', 2)]);
  assert.deepEqual(shown(buffer), ['a', 'b']);
});

test('messages with the same id are all shown: of two topics, positions, or senders', () => {
  const buffer = new MessageBuffer(10);
  const same = message('a', 't', 1);
  const sender = { type: 'user', id: 'bob' };
  const changes = [{ topic: 'u' }, { seq: 5 }, { seq: 6 }, { sender }];
  const others = changes.map((change) => ({ ...same, message: { ...same.message, ...change } }));
  buffer.add([same, ...others, ...others, same]);
  assert.deepEqual(shown(buffer), ['a', 'a', 'a', 'a', 'a']);
});

test('a replay that arrives topic by topic is sorted by time', () => {
  const buffer = new MessageBuffer(10);
  buffer.add([message('x1', 'x', 1), message('x3', 'x', 3), message('y2', 'y', 2)]);
  assert.deepEqual(shown(buffer), ['x1', 'y2', 'x3']);
});

test('messages of one millisecond keep the order in which they came', () => {
  const buffer = new MessageBuffer(10);
  buffer.add([message('late', 't', 9), message('c', 't', 5), message('a', 't', 5)]);
  assert.deepEqual(shown(buffer), ['c', 'a', 'late']);
});

test('a gap is shown before the next message of its topic, not of another one', () => {
  const buffer = new MessageBuffer(10);
  buffer.add([message('x1', 'x', 1), gap('x', 2, 4), message('y', 'y', 2), message('x5', 'x', 3)]);
  assert.deepEqual(shown(buffer), ['x1', 'y', 'gap x', 'x5']);
});

test('a gap that nothing follows yet is at the end, and is reported once', () => {
  const buffer = new MessageBuffer(10);
  buffer.add([message('x1', 'x', 1), gap('x', 2, 4)]);
  buffer.add([gap('x', 2, 4), gap('x', 6, 6)]);
  assert.deepEqual(shown(buffer), ['x1', 'gap x', 'gap x']);
});

test('the buffer is bounded: it removes and returns the oldest, which may return as history', () => {
  const buffer = new MessageBuffer(3);
  buffer.add([message('a', 't', 1), message('b', 't', 2)]);
  const gone = buffer.add([message('c', 't', 3), message('d', 't', 4)]);
  assert.deepEqual(shown(buffer), ['b', 'c', 'd']);
  assert.deepEqual(
    gone.map((entry) => entry.at),
    [1],
  );
  const has = (id: string) => buffer.has(message(id, 't', 1).message);
  assert.deepEqual([has('a'), has('d')], [false, true]);
});

test('keys are never used twice', () => {
  const buffer = new MessageBuffer(2);
  const keys = new Set<number>();
  for (let n = 0; n < 20; n += 1) {
    buffer.add([message(`m${n}`, 't', n)]);
    const key = buffer.entries.at(-1)?.key ?? -1;
    assert.ok(!keys.has(key));
    keys.add(key);
  }
});

test('the row at the top of a row is that row, with any rows open', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 300 }),
      fc.uniqueArray(fc.tuple(fc.nat(299), fc.integer({ min: 1, max: 900 })), {
        selector: ([index]) => index,
        maxLength: 20,
      }),
      fc.nat(299),
      (count, opened, asked) => {
        const open = opened.filter(([at]) => at < count).sort(([a], [b]) => a - b);
        const layout = new RowLayout(count, 32, open);
        const index = asked % count;
        assert.equal(layout.indexAt(layout.top(index)), index);
        const end = index + 1 < count ? layout.top(index + 1) : layout.total;
        assert.equal(layout.indexAt(end - 1), index);
        assert.equal(layout.top(index) < end, true);
      },
    ),
  );
});

test('positions beyond the ends give the first and the last row', () => {
  const layout = new RowLayout(10, 32, [[3, 100]]);
  assert.equal(layout.total, 420);
  assert.equal(layout.indexAt(-50), 0);
  assert.equal(layout.indexAt(5_000), 9);
});

test('coloured JSON is the same text in pieces', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const json = pretty(value);
      assert.equal(
        pieces(json)
          .map(({ text }) => text)
          .join(''),
        json,
      );
    }),
  );
});

test('keys, strings, numbers and literals have different kinds', () => {
  const found = pieces('{"a: b": "c\\": 1", "n": -1.5e3, "t": true}');
  assert.deepEqual(
    found.filter(({ kind }) => kind !== 'mark').map(({ kind, text }) => `${kind} ${text}`),
    ['key "a: b"', 'string "c\\": 1"', 'key "n"', 'number -1.5e3', 'key "t"', 'word true'],
  );
});

test('a gap says how many messages are missing, where, and why', () => {
  assert.equal(
    gapText(gap('demo.a', 31, 42).gap),
    '12 messages of demo.a missing, #31 to #42: no longer retained by the server',
  );
  assert.equal(
    gapText({ topic: 't', from: undefined, to: undefined, missed: undefined, reason: 'unproven' }),
    'Messages of t missing: the server cannot prove that none is missing',
  );
});

test('a number above 2^53 is found at any depth and however large, and no other value', () => {
  let deep: unknown = 9007199254740993n.toString();
  for (let level = 0; level < 100_000; level += 1) deep = [deep];
  for (const json of ['9007199254740993', '-9007199254740992', '12e21', '{"a": [{"b": 1e16}]}']) {
    assert.equal(hasLarge(JSON.parse(json)), true, json);
  }
  const exact = [9007199254740991, 0.1, '9007199254740993', null, undefined, true, {}, [], deep];
  assert.deepEqual(exact.filter(hasLarge), []);
});
