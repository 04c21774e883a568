import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';
import { createServer } from 'vite';

import { axeViolations } from './axe.js';
import {
  addresses,
  atEnd,
  openPage,
  type Server,
  type Site,
  shot,
  startServer,
  until,
} from './harness.js';
import type { Seen } from './pages/react.js';

declare const seen: Seen;

async function openChat(
  t: Parameters<typeof openPage>[0],
  server: Server,
  refusals = 0,
): Promise<Page> {
  const options = { ...addresses(server), token: server.token('--user', 'alice') };
  const given = { options, refusals };
  return openPage(t, { entry: 'pages/react.tsx', given, development: true });
}

async function text(page: Page, selector: string): Promise<string> {
  return (await page.textContent(selector)) ?? '';
}

async function shows(page: Page, selector: string, wanted: string): Promise<void> {
  const found = ([selector, wanted]: string[]) =>
    document.querySelector(selector as string)?.textContent === wanted;
  await until(page, found, [selector, wanted]);
}

/** Number of subscriptions per topic. */
async function subscribed(page: Page): Promise<Record<string, number>> {
  const frames = await page.evaluate(() => seen.sent);
  const counts: Record<string, number> = {};
  for (const { type, topics } of frames) {
    if (type !== 'subscribe') continue;
    for (const topic of topics ?? []) counts[topic] = (counts[topic] ?? 0) + 1;
  }
  return counts;
}

test('StrictMode, fifty remounts and fifty changes of topic use one socket and one subscribe per topic', async (t) => {
  const server = await startServer(t);
  const page = await openChat(t, server);
  await page.evaluate(() => seen.show('demo.0', 0));
  await shows(page, '#status', 'live');
  assert.deepEqual(await subscribed(page), { 'demo.0': 1 });
  assert.equal(await text(page, '#state'), 'connected');

  await page.evaluate(() => {
    for (let build = 1; build <= 50; build += 1) seen.show('demo.0', build);
  });
  await shows(page, '#status', 'live');
  assert.deepEqual(await subscribed(page), { 'demo.0': 1 });

  // Inside the page, because a topic without a component ends after half a second.
  await page.evaluate(async () => {
    for (let change = 1; change <= 50; change += 1) {
      seen.show(`demo.${change % 5}`, 50);
      await new Promise((resolve) => setTimeout(resolve));
    }
  });
  await shows(page, '#status', 'live');
  const counts = await subscribed(page);
  assert.deepEqual(Object.keys(counts).sort(), ['demo.0', 'demo.1', 'demo.2', 'demo.3', 'demo.4']);
  assert.deepEqual(new Set(Object.values(counts)), new Set([1]));
  assert.equal(await page.evaluate(() => seen.sockets.length), 1);

  await page.evaluate(() => seen.hide());
  await until(page, () => seen.sockets.every(({ readyState }) => readyState === WebSocket.CLOSED));
  assert.equal(await page.evaluate(() => seen.sockets.length), 1);
  assert.deepEqual(await page.evaluate(() => seen.problems), []);
});

test('messages and members are rendered once per frame, only the newest', async (t) => {
  const server = await startServer(t, '--publish-rate-service', '10000');
  const page = await openChat(t, server);
  await page.evaluate(() => seen.show('demo.room', 0));
  await shows(page, '#status', 'live');
  await shows(page, '#people', 'alice here');

  const before = await page.evaluate(() => seen.renderings);
  const bob = server.client({ token: server.token('--user', 'bob', '--service') });
  await bob.publishMany(
    Array.from({ length: 500 }, (_, n) => ['demo.room', { data: { text: `${n}` } }] as const),
  );
  await shows(page, '#last', '499');
  const listed = await page.evaluate(() =>
    [...document.querySelectorAll('li')].map((item) => item.textContent),
  );
  assert.deepEqual(
    listed,
    Array.from({ length: 50 }, (_, n) => `${450 + n}`),
  );
  const renderings = (await page.evaluate(() => seen.renderings)) - before;
  assert.ok(renderings < 250, `${renderings} renderings for 500 messages`);

  await page.fill('input', 'Hello from the page');
  await page.press('input', 'Enter');
  await shows(page, '#last', 'Hello from the page');
  await page.click('#people');
  await shows(page, '#people', 'alice typing');
  assert.deepEqual(await page.evaluate(() => seen.problems), []);
  await shot(page, 'react-chat');
});

/** Publish numbers to a topic. */
async function publishTexts(
  server: Server,
  topic: string,
  from: number,
  to: number,
): Promise<void> {
  const bob = server.client({ token: server.token('--user', 'bob', '--service') });
  const texts = Array.from({ length: to - from + 1 }, (_, n) => `${from + n}`);
  await bob.publishMany(texts.map((text) => [topic, { data: { text } }] as const));
}

test('older messages are loaded before those that arrive, in StrictMode, each once', async (t) => {
  const server = await startServer(t);
  await publishTexts(server, 'demo.older', 1, 8);
  const page = await openChat(t, server);
  await page.evaluate(() => seen.show('demo.older', 0));
  await shows(page, '#status', 'live');
  await shows(page, '#older', ' …');
  await page.click('#older');
  await shows(page, '#older', '6 7 8 …');
  await publishTexts(server, 'demo.older', 9, 9);
  await shows(page, '#older', '6 7 8 9 …');
  await page.click('#older');
  await shows(page, '#older', '3 4 5 6 7 8 9 …');
  await page.click('#older');
  await shows(page, '#older', '1 2 3 4 5 6 7 8 9');
  assert.deepEqual(await page.evaluate(() => seen.problems), []);
});

test('a page that an effect loads at the mount is shown once, although StrictMode runs it twice', async (t) => {
  const server = await startServer(t);
  await publishTexts(server, 'demo.mounted', 1, 8);
  const page = await openChat(t, server);
  await page.evaluate(() => seen.show('demo.mounted', 0));
  await shows(page, '#older', '6 7 8 …');
  await shows(page, '#status', 'live');
  await publishTexts(server, 'demo.mounted', 9, 9);
  await shows(page, '#older', '6 7 8 9 …');
  await page.click('#older');
  await shows(page, '#older', '3 4 5 6 7 8 9 …');
  await page.evaluate(() => seen.show('demo.mounted', 1));
  await shows(page, '#older', '6 7 8 9 …');
  assert.deepEqual(await page.evaluate(() => seen.problems), []);
});

test('a denied topic is shown as an error, and no topic means no subscription', async (t) => {
  const server = await startServer(t);
  const page = await openChat(t, server);
  await page.evaluate(() => seen.show(null, 0));
  await shows(page, '#status', 'idle');
  await page.evaluate(() => seen.show('private.room', 0));
  await shows(page, '#status', 'failed');
  assert.match(await text(page, '#error'), /do not allow/);
});

test('a failed client is replaced when the page asks for it', async (t) => {
  const server = await startServer(t);
  const page = await openChat(t, server, 1);
  await page.evaluate(() => seen.show('demo.room', 0));
  await shows(page, '#status', 'failed');
  assert.equal(await text(page, '#state'), 'failed');
  assert.match(await text(page, '#failure'), /Log in again/);
  await page.click('#retry');
  await shows(page, '#status', 'live');
  await shows(page, '#people', 'alice here');
  assert.equal(await text(page, '#state'), 'connected');
  assert.equal(await text(page, '#failure'), '');
  await page.evaluate(() => seen.hide());
  await until(page, () => seen.sockets.every(({ readyState }) => readyState === WebSocket.CLOSED));
  assert.equal(await page.evaluate(() => seen.sockets.length), 1);
});

/** The example as its own Vite server serves it, with its own token endpoint. */
async function serveExample(t: TestContext, server: Server): Promise<Site> {
  const root = join(process.cwd(), 'examples', 'react');
  const cacheDir = mkdtempSync(join(tmpdir(), 'pubsub-vite-'));
  const before = { ...process.env };
  Object.assign(process.env, { PUBSUB_HTTP: server.http, VITE_PUBSUB_URL: server.ws });
  const site = await createServer({
    root,
    cacheDir,
    logLevel: 'error',
    server: { host: '127.0.0.1', port: 0 },
  });
  process.env = before;
  await site.listen();
  atEnd(t, async () => {
    await site.close();
    rmSync(cacheDir, { recursive: true, force: true });
  });
  return { url: site.resolvedUrls?.local[0] ?? '' };
}

test('two people chat in the example, as fast as they type', async (t) => {
  const server = await startServer(t);
  const site = await serveExample(t, server);
  const open = async (user: string): Promise<Page> => {
    const page = await openPage(t, site, { path: `?user=${user}&session=abc` });
    await until(page, () => document.querySelector('section')?.ariaBusy === 'false');
    return page;
  };
  const alice = await open('alice');
  const bob = await open('bob');
  await alice.locator('input').pressSequentially('Hello Bob, how are you doing today?');
  await shows(bob, 'ul', 'alice typingbob ');
  await alice.press('input', 'Enter');
  await shows(bob, 'ol', 'alice Hello Bob, how are you doing today?');
  await shows(bob, 'ul', 'alice herebob ');
  assert.equal(await alice.inputValue('input'), '');
  assert.deepEqual(await axeViolations(bob), []);
  await shot(bob, 'react-example');
});

test('the example shows a message at once, and only once after retries', async (t) => {
  const server = await startServer(t);
  const site = await serveExample(t, server);
  // The browser logs that the server rejects requests of another origin.
  const page = await openPage(t, site, { path: '?user=alice&session=abc', mayFail: true });
  await until(page, () => document.querySelector('section')?.ariaBusy === 'false');

  await server.fault({ fault: 'refuse', on: true });
  await server.fault({ fault: 'drop', user: 'alice' });
  await until(page, () => document.querySelector('[role=status]') !== null);
  await page.fill('input', 'Is anyone there?');
  await page.press('input', 'Enter');
  await until(page, () => document.querySelector('li[aria-busy=true]') !== null);
  await until(page, () => document.querySelector('li [role=alert]') !== null);
  await shot(page, 'react-pending');
  await server.fault({ fault: 'refuse', on: false });
  // The next attempt to connect may be later than the timeout of a publish.
  await until(page, () => document.querySelector('[role=status]') === null);
  await page.click('li [role=alert] button');
  await shows(page, 'ol', 'alice Is anyone there?');
  const bob = server.client({ token: server.token('--user', 'bob') });
  assert.equal((await bob.history('demo.room.abc').next()).value?.data?.text, 'Is anyone there?');
  assert.equal(await page.inputValue('input'), '');
});

test('a message that the example cannot send is shown as failed until it is discarded', async (t) => {
  const server = await startServer(t);
  const page = await openPage(t, await serveExample(t, server), { path: '?user=alice' });
  await until(page, () => document.querySelector('section')?.ariaBusy === 'false');
  await page.fill('input', 'x'.repeat(300_000));
  await page.press('input', 'Enter');
  await until(page, () =>
    Boolean(document.querySelector('li [role=alert]')?.textContent?.startsWith('Not sent')),
  );
  await page.click('text=Discard');
  await shows(page, 'ol', '');
});
