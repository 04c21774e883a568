import assert from 'node:assert/strict';
import { test } from 'node:test';

import { addresses, openPage, shot, startServer, until } from './harness.js';
import type {} from './pages/reader.js';
import { GENEROUS, publishNumbers } from './publisher.js';

const TOPIC = 'demo.numbers';

for (const transport of ['websocket', 'sse']) {
  test(`tokens are renewed on the open connection (${transport})`, async (t) => {
    const server = await startServer(t, ...GENEROUS, '--expiring-notice', '4000');
    const page = await openPage(t, {
      entry: 'pages/reader.ts',
      given: { options: { ...addresses(server), transport }, topic: TOPIC },
      functions: { mint: () => server.token('--user', 'alice', '--ttl', '5') },
    });
    await until(page, () => globalThis.reader?.ready);
    const publisher = publishNumbers(t, server, TOPIC);
    // Each token is renewed four seconds before it expires. The first one has expired by then.
    await until(page, () => reader.asked.length > 6);
    const before = await page.evaluate(() => reader.got.length);
    await until(page, (count) => reader.got.length > count + 10, before);
    const numbers = await publisher.stop();
    await until(page, (count) => reader.got.length >= count, numbers.length);
    const seen = await page.evaluate(() => ({ ...reader, ps: 0 }));
    assert.deepEqual(seen.got, numbers);
    assert.deepEqual(seen.gaps, []);
    const [first, ...others] = seen.asked;
    assert.equal(first, 'connect');
    assert.deepEqual([...new Set(others)], ['expiring']);
    assert.deepEqual(
      seen.states.map(([state]) => state),
      ['connecting', 'authenticating', 'connected'],
    );
    await shot(page, `tokens-${transport}`);
  });
}

test('a token that expires without a notice is replaced, and nothing is lost', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  const page = await openPage(t, {
    entry: 'pages/reader.ts',
    given: { options: addresses(server), topic: TOPIC },
    functions: { mint: () => server.token('--user', 'alice') },
  });
  await until(page, () => globalThis.reader?.ready);
  const publisher = publishNumbers(t, server, TOPIC);
  await until(page, () => reader.got.length > 10);
  await server.fault({ fault: 'expire', user: 'alice' });
  await until(page, () => reader.asked.length > 1);
  const numbers = await publisher.stop();
  await until(page, (count) => reader.got.length >= count, numbers.length);
  assert.deepEqual(await page.evaluate(() => reader.got), numbers);
  assert.deepEqual(await page.evaluate(() => reader.gaps), []);
});
