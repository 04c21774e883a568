import assert from 'node:assert/strict';
import { test } from 'node:test';

import { IdMaker, messageId } from '../../js/src/wire/ids.js';

test('an id is msg_ and a ULID of its millisecond', () => {
  const maker = new IdMaker(
    () => 1_469_918_176_385,
    (count) => new Uint8Array(count).fill(31),
  );
  assert.equal(maker.messageId(), 'msg_01ARYZ6S41ZZZZZZZZZZZZZZZZ');
  assert.equal(maker.messageId(), 'msg_01ARYZ6S420000000000000000');
});

test('ids sort in the order of their creation, also while the clock stops or goes backwards', () => {
  const times = [5, 5, 5, 9, 3, 3, 10];
  const maker = new IdMaker(
    () => times.shift() ?? 10,
    (count) => Uint8Array.from({ length: count }, (_, n) => 31 - n),
  );
  const ids = Array.from({ length: 200 }, () => maker.messageId());
  assert.deepEqual([...ids].sort(), ids);
  assert.equal(new Set(ids).size, ids.length);
});

test('an id is greater than one that the random part carried into the next millisecond', () => {
  let [now, digit] = [1_000, 31];
  const maker = new IdMaker(
    () => now,
    (count) => new Uint8Array(count).fill(digit),
  );
  const ids = [maker.messageId(), maker.messageId()];
  assert.equal(ids[1], 'msg_00000000Z90000000000000000');
  [now, digit] = [1_001, 0];
  ids.push(maker.messageId());
  now = 1_002;
  ids.push(maker.messageId());
  assert.deepEqual(ids.slice(2), [
    'msg_00000000Z90000000000000001',
    'msg_00000000ZA0000000000000000',
  ]);
});

test('ids of one process are all different', () => {
  const ids = Array.from({ length: 5_000 }, messageId);
  assert.equal(new Set(ids).size, ids.length);
});
