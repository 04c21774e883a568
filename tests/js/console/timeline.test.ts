import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Message } from '../../../js/src/index.js';
import type { Entry } from '../../../server-mock/console/src/messages/buffer.js';
import { exported } from '../../../server-mock/console/src/messages/export.js';
import { isFound, typesOf } from '../../../server-mock/console/src/messages/filter.js';
import { nearest, timelineOf } from '../../../server-mock/console/src/messages/timeline_model.js';

const START = 1_700_000_000_000;

function message(key: number, at: number, arrived?: number, more: Partial<Message> = {}): Entry {
  const body = { id: `m${key}`, topic: 'a', type: 't', timestamp: at, data: {}, ...more };
  return { kind: 'message', key, at, topic: body.topic, message: body as Message, arrived };
}

function gap(key: number, at: number, missed?: number): Entry {
  const reason = 'history_trimmed';
  return {
    kind: 'gap',
    key,
    at,
    topic: 'a',
    gap: { topic: 'a', from: 1, to: 2, missed, reason },
  };
}

test('a message that arrives long after it was published counts as replayed', () => {
  const entries = [
    message(1, START, START + 60_000),
    message(2, START + 61_000, START + 61_040),
    message(3, START + 62_000),
  ];
  const found = timelineOf(entries, 400, START + 62_000, undefined, 0);
  assert.deepEqual([found?.live, found?.replayed, found?.gaps], [1, 2, 0]);
});

test("a clock behind the server's does not mark live messages as replayed", () => {
  const entries = [message(1, START, START - 30_000)];
  assert.equal(timelineOf(entries, 400, START, undefined, 30_000)?.live, 1);
  const ahead = [message(1, START, START + 30_000)];
  assert.equal(timelineOf(ahead, 400, START, undefined, -30_000)?.live, 1);
});

test('messages whose marks would overlap share one, and gaps have their own', () => {
  const entries = [
    ...Array.from({ length: 500 }, (_, n) => message(n, START + n, START + n)),
    gap(500, START + 500, 15),
    message(501, START + 60_000, START + 60_000),
  ];
  const found = timelineOf(entries, 400, START + 60_000, undefined, 0);
  assert.deepEqual([found?.live, found?.gaps, found?.missing], [501, 1, 15]);
  assert.ok((found?.marks.length ?? 99) <= 5);
  assert.equal(found?.marks.find(({ kind }) => kind === 'gap')?.count, 15);
  assert.equal(nearest(found?.marks ?? [], 390)?.key, 501);
});

test('a gap of unknown size stays one', () => {
  const found = timelineOf([gap(1, START), gap(2, START, 3)], 400, START, undefined, 0);
  assert.equal(found?.marks[0]?.count, undefined);
  assert.deepEqual([found?.gaps, found?.missing], [2, 3]);
});

test('a time span excludes older messages, and its labels are round times', () => {
  const entries = [message(1, START, START), message(2, START + 100_000, START + 100_000)];
  const found = timelineOf(entries, 360, START + 100_000, 60_000, 0);
  assert.equal(found?.live, 1);
  const labels = found?.labels ?? [];
  assert.ok(labels.length >= 2 && labels.length <= 5);
  for (const { at, x } of labels) {
    assert.equal(at % 15_000, 0);
    assert.ok(x >= 0 && x <= 360);
  }
});

test('a search looks into topic, type, id and data, whatever the case', () => {
  const entry = message(7, START, START, { type: 'Created', data: { City: 'Köln' } });
  for (const text of ['köln', 'city', 'created', 'm7']) assert.ok(isFound(entry, undefined, text));
  assert.ok(!isFound(entry, undefined, 'berlin'));
  assert.ok(!isFound(entry, 'other', ''));
  assert.ok(isFound(gap(1, START), 'other', ''));
});

test('the types of messages are listed once, by name', () => {
  const types = ['b', 'a', 'b'].map((type, n) => message(n, START, START, { type }));
  assert.deepEqual(typesOf(types, 100), ['a', 'b']);
});

test('an export contains each shown message, and no gap', () => {
  const entries = [message(1, START), gap(2, START), message(3, START)];
  const lines = exported(entries, 'ndjson').trimEnd().split('\n');
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as Message).id),
    ['m1', 'm3'],
  );
  assert.equal((JSON.parse(exported(entries, 'json')) as Message[]).length, 2);
  assert.equal(exported([], 'ndjson'), '');
});
