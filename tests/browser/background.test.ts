import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';

import {
  addresses,
  atEnd,
  bounded,
  deferred,
  developerTools,
  openHideableProfile,
  openPage,
  type Server,
  serveSite,
  shot,
  startServer,
  until,
} from './harness.js';
import type {} from './pages/reader.js';
import { GENEROUS, publishNumbers } from './publisher.js';

const TOPIC = 'demo.numbers';

/** A server whose idle timeout is two seconds. */
const IMPATIENT = ['--presence-timeout', '2000', '--server-ping-interval', '500'];

async function openReader(t: TestContext, server: Server, more: object = {}): Promise<Page> {
  const site = await serveSite(t, { entry: 'pages/reader.ts' });
  const profile = await openHideableProfile(t);
  const page = await openPage(t, site, {
    profile,
    given: {
      options: { ...addresses(server), token: server.token('--user', 'alice'), ...more },
      topic: TOPIC,
    },
  });
  await until(page, () => globalThis.reader?.ready);
  return page;
}

/** Bring another tab to the front, so that the page is hidden. */
async function hide(page: Page): Promise<void> {
  const other = await page.context().newPage();
  await other.bringToFront();
  await until(page, () => document.visibilityState === 'hidden');
}

async function gotAll(page: Page, numbers: readonly number[]): Promise<void> {
  await until(page, (count) => reader.got.length >= count, numbers.length);
  const { got, gaps } = await page.evaluate(() => ({ got: reader.got, gaps: reader.gaps }));
  assert.deepEqual(got, numbers);
  assert.deepEqual(gaps, []);
}

test('a hidden tab whose timers are throttled stays connected and present', async (t) => {
  const server = await startServer(t, ...GENEROUS, ...IMPATIENT);
  const page = await openReader(t, server);
  const watcher = server.client({ token: server.token('--user', 'watcher') });
  const changes: string[] = [];
  await watcher.subscribe(TOPIC, {
    onPresence: (_members, { change, member }) => changes.push(`${change} ${member?.user_id}`),
  });
  await hide(page);
  // A timer of the page with an interval of 50 ms shows the throttling: the server's timeout passes
  // several times before this timer has fired six times.
  const runs = await page.evaluate(
    () =>
      new Promise<number[]>((resolve) => {
        const at: number[] = [];
        setInterval(() => {
          at.push(performance.now());
          if (at.length === 6) resolve(at);
        }, 50);
      }),
  );
  const [first = 0, last = 0] = [runs[0], runs.at(-1)];
  assert(last - first > 2_500, `not throttled: six runs of a timer took ${last - first} ms`);
  const publisher = publishNumbers(t, server, TOPIC);
  await until(page, () => reader.got.length > 20);
  await gotAll(page, await publisher.stop());
  assert.deepEqual(await page.evaluate(() => reader.states.map(([state]) => state)), [
    'connecting',
    'authenticating',
    'connected',
  ]);
  assert.deepEqual(
    changes.filter((change) => change.endsWith('alice')),
    [],
  );
  const members = await watcher.presence(TOPIC);
  assert.deepEqual(members.map(({ user_id }) => user_id).sort(), ['alice', 'watcher']);
});

test('a page that hangs is no longer a member, although its socket answers pings', async (t) => {
  const server = await startServer(t, ...GENEROUS, ...IMPATIENT, '--program-timeout', '3000');
  const page = await openReader(t, server, { pingInterval: 500 });
  const watcher = server.client({
    token: server.token('--user', 'watcher'),
    pingInterval: 500,
  });
  const left = deferred<void>();
  await watcher.subscribe(TOPIC, {
    onPresence: (_members, { change, member }) => {
      if (change === 'leave' && member?.user_id === 'alice') left.resolve();
    },
  });
  const hold = createServer((_request, response) => {
    response.setHeader('access-control-allow-origin', '*');
    // A synchronous request blocks every script of the page until it is answered.
    void left.promise.then(() => response.end());
  });
  hold.listen(0, '127.0.0.1');
  atEnd(t, async () => void hold.close());
  await once(hold, 'listening');
  const { port } = hold.address() as AddressInfo;
  const hung = page.evaluate((address) => {
    const request = new XMLHttpRequest();
    request.open('GET', address, false);
    request.send();
  }, `http://127.0.0.1:${port}/`);
  await bounded(left.promise, 'the leave of a page that hangs');
  await hung;
  // The program continues, and so does its session.
  await until(page, () => reader.states.filter(([state]) => state === 'connected').length > 1);
});

test('a tab that was frozen comes back and resumes', async (t) => {
  const server = await startServer(t, ...GENEROUS, ...IMPATIENT);
  const page = await openReader(t, server);
  const publisher = publishNumbers(t, server, TOPIC);
  await until(page, () => reader.got.length > 5);
  await hide(page);
  const tools = await developerTools(page);
  await tools.send('Page.setWebLifecycleState', { state: 'frozen' });
  await publisher.more(200);
  await tools.send('Page.setWebLifecycleState', { state: 'active' });
  await page.bringToFront();
  await until(page, () => reader.got.length > 200);
  await gotAll(page, await publisher.stop());
  await shot(page, 'back-from-frozen');
});

test('a page resumes when the user returns to it with the back button', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  // The test would time out before this wait ends, so the reconnect must end it.
  const retry = { base: 10_000_000, cap: 10_000_000 };
  const page = await openReader(t, server, { retry });
  const publisher = publishNumbers(t, server, TOPIC);
  await until(page, () => reader.got.length > 5);
  await page.evaluate(() => {
    addEventListener('pageshow', ({ persisted }) => {
      document.title = persisted ? 'restored' : 'loaded';
    });
  });
  const address = page.url();
  await page.goto(`${new URL(address).origin}/elsewhere`);
  await publisher.more(100);
  // The call must return before the page is left.
  await page.evaluate(() => void setTimeout(() => history.back()));
  await page.waitForURL(address, { waitUntil: 'commit' });
  await until(page, () => document.title === 'restored');
  await gotAll(page, await publisher.stop());
  assert((await page.evaluate(() => reader.states)).length > 3, 'the connection is a new one');
  await shot(page, 'back-button');
});
