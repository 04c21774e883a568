import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import { addresses, openPage, type Server, shot, startServer, until } from './harness.js';
import type {} from './pages/reader.js';
import { GENEROUS, publishNumbers } from './publisher.js';

const TOPIC = 'demo.numbers';

function given(server: Server, options: object = {}): object {
  const token = server.token('--user', 'alice');
  return { options: { ...addresses(server), token, ...options }, topic: TOPIC };
}

async function connected(page: Page, times: number): Promise<void> {
  await until(
    page,
    (wanted) => reader.states.filter(([state]) => state === 'connected').length >= wanted,
    times,
  );
}

/** Wait until the page has more numbers than now. */
async function goesOn(page: Page): Promise<void> {
  const before = await page.evaluate(() => reader.got.length);
  await until(page, (count) => reader.got.length > count, before);
}

/** The page has every number once, in order, and reported no gap. */
async function gotAll(page: Page, numbers: readonly number[]): Promise<void> {
  await until(page, (count) => reader.got.length >= count, numbers.length);
  const { got, gaps } = await page.evaluate(() => ({ got: reader.got, gaps: reader.gaps }));
  assert.deepEqual(got, numbers);
  assert.deepEqual(gaps, []);
}

for (const transport of ['websocket', 'auto', 'sse']) {
  test(`a cut connection (${transport}) resumes, without a loss or a duplicate`, async (t) => {
    const server = await startServer(t, ...GENEROUS);
    const page = await openPage(t, {
      entry: 'pages/reader.ts',
      given: given(server, { transport }),
    });
    await until(page, () => globalThis.reader?.ready);
    const publisher = publishNumbers(t, server, TOPIC);
    for (let cut = 1; cut <= 5; cut += 1) {
      await goesOn(page);
      await server.fault({ fault: 'drop', user: 'alice', after: cut * 3 });
      await connected(page, 2 * cut);
      await goesOn(page);
      await server.fault({ fault: 'drop', user: 'alice' });
      await connected(page, 2 * cut + 1);
    }
    await goesOn(page);
    await gotAll(page, await publisher.stop());
    await shot(page, `resumed-after-cuts-${transport}`);
  });
}

test('nothing is lost while the network is down for a while', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  const page = await openPage(t, { entry: 'pages/reader.ts', given: given(server) });
  await until(page, () => globalThis.reader?.ready);
  const publisher = publishNumbers(t, server, TOPIC);
  for (let time = 1; time <= 3; time += 1) {
    await goesOn(page);
    const before = await page.evaluate(
      () => reader.states.filter(([state]) => state === 'connected').length,
    );
    await page.context().setOffline(true);
    await publisher.more(50);
    if (time === 2) await server.fault({ fault: 'drop', user: 'alice' });
    await page.context().setOffline(false);
    // Otherwise the client may have received data meanwhile, and keep the connection.
    if (time === 2) await connected(page, before + 1);
  }
  await gotAll(page, await publisher.stop());
  await shot(page, 'resumed-after-offline');
});

test('the client reconnects at once when the network returns', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  // The test would time out before this wait ends.
  const retry = { base: 10_000_000, cap: 10_000_000 };
  const page = await openPage(t, { entry: 'pages/reader.ts', given: given(server, { retry }) });
  await until(page, () => globalThis.reader?.ready);
  await server.fault({ fault: 'refuse' });
  await server.fault({ fault: 'drop' });
  await until(page, () => reader.ps.state === 'reconnecting');
  await page.context().setOffline(true);
  await server.fault({ fault: 'refuse', on: false });
  await page.context().setOffline(false);
  await connected(page, 2);
});

test('a reloaded page continues from its position', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  const page = await openPage(t, { entry: 'pages/reader.ts', given: given(server) });
  await until(page, () => globalThis.reader?.ready);
  const publisher = publishNumbers(t, server, TOPIC);
  for (let time = 0; time < 4; time += 1) {
    await goesOn(page);
    await page.reload();
    await until(page, () => globalThis.reader?.ready);
  }
  await goesOn(page);
  await gotAll(page, await publisher.stop());
  await shot(page, 'resumed-after-reload');
});
