import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { BrowserContext, Page } from 'playwright-core';

import {
  addresses,
  addressesAskedFor,
  BOUND,
  developerTools,
  openHideableProfile,
  openPage,
  openProfile,
  type Server,
  type Site,
  serveSite,
  startServer,
  until,
} from './harness.js';

declare const got: number[];
declare const ps: { readonly state: string };

const TAB = `
  import { PubSub } from '@hanzoai/pubsub';
  window.got = [];
  window.ps = new PubSub({ ...given, shareTabs: true });
  await ps.subscribe('demo.tabs', { onMessage: ({ data }) => got.push(data) });
  document.title = 'ready';`;

/** The counters of the server. */
async function metric(server: Server, name: string): Promise<number> {
  const text = await (await fetch(`${server.http}/metrics`)).text();
  const line = text.split('\n').find((line) => line.startsWith(`hanzo_pubsub_${name} `));
  return Number(line?.split(' ')[1]);
}

/** Open sockets at the server, including those of publishers. */
function sockets(server: Server): Promise<number> {
  return metric(server, 'connections{form="socket"}');
}

/** Wait until one socket is left. A tab that is no longer the leader closes its own a moment later. */
async function untilOneSocket(server: Server): Promise<void> {
  const end = Date.now() + BOUND;
  while ((await sockets(server)) !== 1) {
    assert(Date.now() < end, 'several sockets stay open');
    await pause(25);
  }
}

async function openTab(
  t: Parameters<typeof openPage>[0],
  site: Site,
  profile: BrowserContext,
  given: object,
): Promise<Page> {
  const page = await openPage(t, site, { profile, given });
  await until(page, () => document.title === 'ready');
  return page;
}

/** With HANZO_PUBSUB_SOAK, as many tabs as a busy user has. */
const TABS = process.env['HANZO_PUBSUB_SOAK'] ? 20 : 6;

test('many tabs have one socket; each leader is closed, and every tab that is left has every message once', async (t) => {
  const server = await startServer(
    t,
    '--publish-rate-service',
    '10000',
    '--history-max-messages',
    '5000',
  );
  const site = await serveSite(t, { entry: TAB });
  const profile = await openProfile(t);
  const given = { ...addresses(server), token: server.token('--user', 'alice') };
  const pages: Page[] = [];
  for (let n = 0; n < TABS; n += 1) pages.push(await openTab(t, site, profile, given));
  assert.equal(addressesAskedFor(profile).filter((url) => url === server.ws).length, 1);
  assert.equal(await sockets(server), 1);

  const publisher = server.client({ token: server.token('--user', 'worker', '--service') });
  let going = true;
  let published = 0;
  const publishing = (async () => {
    while (going) {
      await publisher.publish('demo.tabs', { data: published });
      published += 1;
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  })();
  // Open a new tab for each that closes, so that this many leaders can be closed.
  for (let turn = 0; turn < TABS; turn += 1) {
    const leader = pages.shift() as Page;
    await leader.close();
    pages.push(await openTab(t, site, profile, given));
    const goal = published;
    await Promise.all(pages.map((page) => until(page, (goal) => (got.at(-1) ?? -1) >= goal, goal)));
  }
  going = false;
  await publishing;
  for (const page of pages) {
    await until(page, (last) => got.at(-1) === last, published - 1);
    const all = await page.evaluate(() => got);
    assert.deepEqual(
      all,
      Array.from(all, (_, n) => (all[0] as number) + n),
    );
  }
  await publisher.close();
  await untilOneSocket(server);
});

test('a frozen tab loses the socket, and has missed nothing when it resumes', async (t) => {
  const server = await startServer(t, '--publish-rate-service', '10000');
  const site = await serveSite(t, { entry: TAB });
  // A visible tab cannot be frozen; the tab that was opened last is visible.
  const profile = await openHideableProfile(t);
  const options = { pingInterval: 300, pongTimeout: 300, openTimeout: 2_000 };
  const given = {
    ...addresses(server),
    ...options,
    token: server.token('--user', 'alice'),
  };
  const leader = await openTab(t, site, profile, given);
  const others = [await openTab(t, site, profile, given), await openTab(t, site, profile, given)];
  const publisher = server.client({ token: server.token('--user', 'worker', '--service') });
  const publish = async (from: number, to: number): Promise<void> => {
    for (let data = from; data < to; data += 1) await publisher.publish('demo.tabs', { data });
  };
  const has = async (page: Page, count: number): Promise<void> => {
    await until(page, (count) => got.length >= count, count);
    assert.deepEqual(await page.evaluate(() => got), [...Array(count).keys()]);
  };
  await publish(0, 10);
  for (const page of [leader, ...others]) await has(page, 10);

  const tools = await developerTools(leader);
  await tools.send('Page.setWebLifecycleState', { state: 'frozen' });
  await publish(10, 20);
  for (const page of others) await has(page, 20);
  // The socket of the frozen tab, of the publisher, and of at least one other tab.
  assert((await metric(server, 'connections_total')) > 2);

  await tools.send('Page.setWebLifecycleState', { state: 'active' });
  await publish(20, 30);
  for (const page of [leader, ...others]) await has(page, 30);
  await publisher.close();
  await untilOneSocket(server);
});

test('the other tabs continue at once when the user follows a link in the leader', async (t) => {
  const server = await startServer(t, '--publish-rate-service', '10000');
  const site = await serveSite(t, { entry: TAB });
  const profile = await openHideableProfile(t);
  // The test would time out before a ping fails or a tab takes the lock by force.
  const slow = { pingInterval: 600_000, pongTimeout: 600_000, openTimeout: 600_000 };
  // For a page of another site, the browser keeps this page, with its locks, in its cache.
  const elsewhere = `${site.url.replace('127.0.0.1', 'localhost')}elsewhere`;
  const token = server.token('--user', 'alice');
  const given = { ...addresses(server), ...slow, token };
  const leader = await openTab(t, site, profile, given);
  const others = [await openTab(t, site, profile, given), await openTab(t, site, profile, given)];
  const publisher = server.client({ token: server.token('--user', 'worker', '--service') });
  const publish = async (from: number, to: number): Promise<void> => {
    for (let data = from; data < to; data += 1) await publisher.publish('demo.tabs', { data });
  };
  const has = async (page: Page, from: number, to: number): Promise<void> => {
    await until(page, (to) => got.at(-1) === to - 1, to);
    const all = await page.evaluate(() => got);
    assert.deepEqual(
      all,
      Array.from({ length: to - from }, (_, n) => from + n),
    );
  };
  await publish(0, 10);
  for (const page of [leader, ...others]) await has(page, 0, 10);

  const address = leader.url();
  await leader.evaluate((href) => {
    const link = document.createElement('a');
    link.href = href;
    document.body.append(link);
    // The call must return before the page is left.
    setTimeout(() => link.click());
  }, elsewhere);
  await leader.waitForURL(elsewhere);
  await publish(10, 20);
  for (const page of others) await has(page, 0, 20);

  // The browser may restore the page, or load it again.
  await leader.evaluate(() => void setTimeout(() => history.back()));
  await leader.waitForURL(address, { waitUntil: 'commit' });
  await until(leader, () => document.title === 'ready');
  await publish(20, 30);
  const from = (await leader.evaluate(() => got[0] === 0)) ? 0 : 20;
  await has(leader, from, 30);
  for (const page of others) await has(page, 0, 30);
  await publisher.close();
  await untilOneSocket(server);
});

const OTHER_TOKEN = `
  import { PubSub } from '@hanzoai/pubsub';
  const begin = async (token) => {
    window.ps = new PubSub({ ...given, token, shareTabs: true });
    await ps.connect();
  };
  const reads = () => ps.subscribe('org.acme.room').then(() => 'granted', ({ code }) => code);
  const replace = async (token) => {
    await ps.close();
    await begin(token);
    return reads();
  };
  Object.assign(window, { reads, replace });
  await begin(given.token);
  document.title = 'ready';`;

declare const reads: () => Promise<string>;
declare const replace: (token: string) => Promise<string>;

test('a new client has the rights of its own token, whichever token other tabs have', async (t) => {
  const server = await startServer(t);
  const site = await serveSite(t, { entry: OTHER_TOKEN });
  const profile = await openProfile(t);
  const before = server.token('--user', 'alice');
  const after = server.token('--user', 'alice', '--org', 'acme');
  const given = { ...addresses(server), token: before };
  const one = await openTab(t, site, profile, given);
  const two = await openTab(t, site, profile, given);
  assert.equal(await sockets(server), 1);
  assert.equal(await two.evaluate(() => reads()), 'forbidden');

  assert.equal(await two.evaluate((token) => replace(token), after), 'granted');
  assert.equal(await one.evaluate(() => reads()), 'forbidden');
  assert.equal(await sockets(server), 2);

  assert.equal(await one.evaluate((token) => replace(token), after), 'granted');
  await untilOneSocket(server);
  assert.equal(await two.evaluate(() => ps.state), 'connected');
});
