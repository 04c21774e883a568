/** Signals of calls: one signal may outlive many clients. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import { MemoryServer } from '../../../js/src/testing/index.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

for (const [how, end] of [
  ['is unsubscribed', 'unsubscribe'],
  ['ends with its client', 'close'],
] as const) {
  test(`a signal does not keep a subscription that ${how}`, async () => {
    await using server = await new MemoryServer().start();
    const { signal } = new AbortController();
    const subscribeAndEnd = async (): Promise<WeakRef<object>> => {
      const onMessage = (): void => {};
      const client = server.client();
      const sub = await client.subscribe('demo.signals', { signal, onMessage });
      await (end === 'close' ? client.close() : sub.unsubscribe());
      return new WeakRef(onMessage);
    };
    const handlers = await Promise.all(Array.from({ length: 20 }, subscribeAndEnd));
    await new Promise((resolve) => setTimeout(resolve));
    collect();
    const kept = handlers.filter((handler) => handler.deref());
    // The machine may still keep the last one.
    assert.ok(kept.length <= 1, `${kept.length} are kept`);
    assert.equal(signal.aborted, false);
  });
}

test('`close` rejects a timeout that is no time, and closes nothing', async () => {
  await using server = await new MemoryServer().start();
  const client = server.client();
  await client.connect();
  for (const timeout of ['5 s', Number.NaN, -1]) {
    await assert.rejects(client.close({ timeout } as never), { field: 'timeout' });
  }
  await client.publish('demo.signals', { data: 1 });
});
