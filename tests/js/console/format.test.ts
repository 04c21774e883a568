import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  age,
  bytes,
  clockTime,
  compact,
  countdown,
  initials,
  plural,
  preview,
  rate,
} from '../../../server-mock/console/src/format.js';

test('a countdown shows minutes and seconds, rounds up and never goes below zero', () => {
  assert.equal(countdown(272_000), '4:32');
  assert.equal(countdown(271_001), '4:32');
  assert.equal(countdown(3_884_000), '1:04:44');
  assert.equal(countdown(-5), '0:00');
});

test('times are shown to the millisecond', () => {
  assert.match(clockTime(1_740_000_000_007), /^\d\d:\d\d:\d\d\.007$/);
});

test('an age has one unit', () => {
  assert.deepEqual([0, 12_000, 240_000, 10_800_000, 2e8, -5].map(age), [
    'now',
    '12 s',
    '4 min',
    '3 h',
    '2 d',
    'now',
  ]);
});

test('large numbers are short', () => {
  assert.deepEqual([0, 999, 1_000, 12_345, 999_949, 999_999, 4.1e6, 3e9].map(compact), [
    '0',
    '999',
    '1.0k',
    '12.3k',
    '1000k',
    '1.0M',
    '4.1M',
    '3.0G',
  ]);
  assert.deepEqual([0, 0.3, 8.24, 128.4, 9_900].map(rate), ['0', '0.3', '8.2', '128', '9.9k']);
  assert.deepEqual([512, 10_188, 10_189, 12_595, 1_048_300, 4_299_162, 2 ** 40].map(bytes), [
    '512 B',
    '9.9 KiB',
    '10 KiB',
    '12 KiB',
    '1.0 MiB',
    '4.1 MiB',
    '1.0 TiB',
  ]);
});

test('1 takes the singular', () => {
  assert.equal(plural(1, 'message'), '1 message');
  assert.equal(plural(2_000, 'message'), '2,000 messages');
});

test('a preview is one line of bounded length, whatever the data', () => {
  assert.equal(
    preview({ a: 1, b: ['x', null], c: { d: true } }),
    '{a: 1, b: ["x", null], c: {d: true}}',
  );
  assert.equal(preview('two\nlines'), '"two\\nlines"');
  assert.equal(preview(null), 'null');
  const large = Array.from({ length: 100_000 }, (_, n) => ({ n, text: 'x'.repeat(50) }));
  assert.ok(preview(large).length <= 320);
  let deep: unknown = 1;
  for (let n = 0; n < 5_000; n += 1) deep = [deep];
  assert.match(preview(deep), /^\[+…\]+$/);
});

test('initials come from first and last name', () => {
  assert.deepEqual(['Ana Ruiz', 'gateway', 'ana.b.ruiz', '', '日本'].map(initials), [
    'AR',
    'G',
    'AR',
    '?',
    '日',
  ]);
});
