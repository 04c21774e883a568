import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import {
  addresses,
  bounded,
  deferred,
  openPage,
  openProfile,
  type Server,
  shot,
  startServer,
  until,
} from './harness.js';
import type {} from './pages/recover.js';
import { GENEROUS, publishNumbers } from './publisher.js';

const TOPIC = 'demo.numbers';

/** Record the presence changes of alice that others see, and wait for the last one. */
async function watch(server: Server) {
  const changes: string[] = [];
  const left = deferred<void>();
  const watcher = server.client({ token: server.token('--user', 'watcher') });
  await watcher.subscribe(TOPIC, {
    onPresence: (_members, { change, member }) => {
      if (member?.user_id !== 'alice') return;
      changes.push(change);
      if (change === 'leave') left.resolve();
    },
  });
  return { changes, left: left.promise, watcher };
}

function given(server: Server, options: object = {}): object {
  const token = server.token('--user', 'alice');
  return { options: { ...addresses(server), token, ...options }, topic: TOPIC };
}

const isReady = (page: Page): Promise<void> => until(page, () => globalThis.recovered?.ready);
const idOf = (page: Page): Promise<string | undefined> =>
  page.evaluate(() => recovered.ps.clientId);

for (const transport of ['websocket', 'sse']) {
  test(`a reload (${transport}) causes no leave and no gap: the client continues`, async (t) => {
    const server = await startServer(t, ...GENEROUS, '--presence-grace', '4000');
    const { changes, left, watcher } = await watch(server);
    const page = await openPage(t, {
      entry: 'pages/recover.ts',
      given: given(server, { transport }),
    });
    await isReady(page);
    // On an event stream, only a subscription that requests presence adds a member.
    const isMember = transport === 'websocket';
    const id = await idOf(page);
    const publisher = publishNumbers(t, server, TOPIC);
    for (let time = 1; time <= 4; time += 1) {
      const before = await page.evaluate(() => recovered.got.length);
      await until(page, (count) => recovered.got.length > count, before);
      await page.reload();
      await isReady(page);
      assert.equal(await idOf(page), id);
    }
    const numbers = await publisher.stop();
    await until(page, (count) => recovered.got.length >= count, numbers.length);
    const { got, gaps } = await page.evaluate(() => ({ got: recovered.got, gaps: recovered.gaps }));
    assert.deepEqual(got, numbers);
    assert.deepEqual(gaps, []);
    if (isMember) {
      const members = await watcher.presence(TOPIC);
      assert.ok(members.some(({ client_id }) => client_id === id));
    }
    await shot(page, `recovered-after-reload-${transport}`);
    if (!isMember) return;
    // A tab that closes permanently leaves after the grace period; others see no other change.
    await page.close();
    await bounded(left, 'the leave');
    assert.deepEqual(changes, ['join', 'leave']);
  });
}

test('a duplicated tab is a separate client, also after a reload of both', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  const { changes } = await watch(server);
  const profile = await openProfile(t);
  await profile.addInitScript(`globalThis.given = ${JSON.stringify(given(server))}`);
  const page = await openPage(t, { entry: 'pages/recover.ts', profile });
  await isReady(page);
  await page.reload();
  await isReady(page);
  // The new tab gets a copy of the first tab's storage.
  await page.evaluate(() => sessionStorage.setItem('mark', 'copied'));
  const opening = profile.waitForEvent('page');
  await page.evaluate(() => void window.open(location.href));
  const second = await opening;
  await isReady(second);
  assert.equal(await second.evaluate(() => sessionStorage.getItem('mark')), 'copied');
  const ids = [await idOf(page), await idOf(second)];
  assert.notEqual(ids[0], ids[1]);
  for (const tab of [page, second]) {
    await tab.reload();
    await isReady(tab);
  }
  assert.deepEqual([await idOf(page), await idOf(second)], ids);
  for (const tab of [page, second]) {
    assert.deepEqual(await tab.evaluate(() => recovered.states), [
      'connecting',
      'authenticating',
      'connected',
    ]);
  }
  assert.deepEqual(changes, ['join', 'connect']);
});

test('another user of the same tab gets a different client id', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  const page = await openPage(t, { entry: 'pages/recover.ts', given: given(server) });
  await isReady(page);
  const id = await idOf(page);
  const token = server.token('--user', 'bob');
  const next = { options: { ...addresses(server), token }, topic: TOPIC };
  await page.addInitScript(`globalThis.given = ${JSON.stringify(next)}`);
  await page.reload();
  await isReady(page);
  assert.notEqual(await idOf(page), id);
});
