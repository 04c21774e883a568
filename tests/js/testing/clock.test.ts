import assert from 'node:assert/strict';
import { test } from 'node:test';

import { InvalidOption } from '../../../js/src/index.js';
import { VirtualClock } from '../../../js/src/testing/index.js';

test('timers fire in the order of their times, and what they wake runs in between', async () => {
  const clock = new VirtualClock(1_000);
  const order: string[] = [];
  const sleeper = async (name: string, milliseconds: number): Promise<void> => {
    await clock.sleep(milliseconds);
    order.push(`${name} ${clock.now()}`);
    await clock.sleep(500);
    order.push(`${name} ${clock.now()}`);
  };
  const asleep = Promise.all([sleeper('a', 2_000), sleeper('b', 1_000)]);
  clock.callLater(3_000, () => order.push('never')).cancel();
  assert.equal(clock.pending, 2);
  await clock.advance(2_250);
  assert.deepEqual(order, ['b 1000', 'b 1500', 'a 2000']);
  assert.equal(clock.wallMs(), 3_250);
  assert.equal(clock.pending, 1);
  await clock.advance(1_000);
  assert.equal(order.at(-1), 'a 2500');
  await asleep;
});

test('`until` returns how long it took, or fails at its limit', async () => {
  const clock = new VirtualClock();
  const done: number[] = [];
  clock.callLater(7_000, () => done.push(1));
  assert.equal(await clock.advanceUntil(() => done.length), 7_000);
  await assert.rejects(() => clock.advanceUntil(() => false), /3600000 virtual milliseconds/);
  clock.callLater(100_000, () => {});
  await assert.rejects(() => clock.advanceUntil(() => false, 10), /10 virtual milliseconds/);
  assert.equal(clock.now(), 7_000);
});

test('timers that start each other endlessly are detected', async () => {
  const clock = new VirtualClock();
  const again = (): void => void clock.callLater(0, again);
  again();
  await assert.rejects(() => clock.settle(), /without any time passing/);
});

test('suspending the machine changes only the wall clock', async () => {
  const clock = new VirtualClock(0);
  let hasFired = false;
  clock.callLater(1_000, () => {
    hasFired = true;
  });
  await clock.machineSleeps(5_000);
  assert.deepEqual([clock.now(), clock.wallMs(), hasFired], [0, 5_000, false]);
});

test('time that goes back is refused', async () => {
  const clock = new VirtualClock();
  for (const milliseconds of [-1, Number.NaN, '5' as never]) {
    await assert.rejects(() => clock.advance(milliseconds), InvalidOption);
  }
});

test('a clock works although a test runner replaced the timers of the platform', async () => {
  const { setImmediate: immediate, setTimeout: timeout, MessageChannel: Channel } = globalThis;
  const never = (() => {}) as never;
  Object.assign(globalThis, { setImmediate: never, setTimeout: never, MessageChannel: never });
  try {
    const clock = new VirtualClock();
    let hasFired = false;
    clock.callLater(60_000, () => {
      hasFired = true;
    });
    await clock.advance(60_000);
    assert.ok(hasFired);
  } finally {
    Object.assign(globalThis, {
      setImmediate: immediate,
      setTimeout: timeout,
      MessageChannel: Channel,
    });
  }
});
