import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import { addresses, openPage, type Server, shot, startServer, until } from './harness.js';
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

/** How often each topic was subscribed to. */
async function subscribed(page: Page): Promise<Record<string, number>> {
  const frames = await page.evaluate(() => seen.sent);
  const counts: Record<string, number> = {};
  for (const { type, topics } of frames) {
    if (type !== 'subscribe') continue;
    for (const topic of topics ?? []) counts[topic] = (counts[topic] ?? 0) + 1;
  }
  return counts;
}

test('StrictMode, fifty remounts and fifty changes of topic cost one socket and one subscribe a topic', async (t) => {
  const server = await startServer(t);
  const page = await openChat(t, server);
  await page.evaluate(() => seen.show('demo.0', 0));
  await shows(page, '#status', 'live');
  assert.deepEqual(await subscribed(page), { 'demo.0': 1 });
  assert.equal(await text(page, '#state'), 'connected');

  for (let build = 1; build <= 50; build += 1) {
    await page.evaluate((build) => seen.show('demo.0', build), build);
  }
  await shows(page, '#status', 'live');
  assert.deepEqual(await subscribed(page), { 'demo.0': 1 });

  for (let change = 1; change <= 50; change += 1) {
    await page.evaluate((change) => seen.show(`demo.${change % 5}`, 50), change);
  }
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

test('messages and members are drawn by frames, the newest of them', async (t) => {
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

test('what is not allowed is shown as an error, and no topic is no subscription', async (t) => {
  const server = await startServer(t);
  const page = await openChat(t, server);
  await page.evaluate(() => seen.show(null, 0));
  await shows(page, '#status', 'idle');
  await page.evaluate(() => seen.show('private.room', 0));
  await shows(page, '#status', 'failed');
  assert.match(await text(page, '#error'), /do not allow/);
});

test('a client that has failed is replaced when the page asks for it', async (t) => {
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

test('two people chat in the example', async (t) => {
  const server = await startServer(t, '--publish-rate-user', '1000');
  const open = async (user: string): Promise<Page> => {
    const page = await openPage(t, {
      // The example names the server of an application; its WebSocket leads here instead.
      entry: `
        import { createRoot } from 'react-dom/client';
        globalThis.WebSocket = class extends WebSocket {
          constructor() { super(given.url); }
        };
        globalThis.fetch = async () => new Response(given.token);
        const { App } = await import('../../examples/react/chat.js');
        const root = createRoot(document.body.appendChild(document.createElement('main')));
        root.render(<App session="abc" />);`,
      given: { url: server.ws, token: server.token('--user', user) },
      development: true,
    });
    await until(page, () => document.querySelector('section')?.ariaBusy === 'false');
    return page;
  };
  const alice = await open('alice');
  const bob = await open('bob');
  await alice.fill('input', 'Hello Bob');
  await shows(bob, 'ul', 'alice typingbob ');
  await alice.press('input', 'Enter');
  await shows(bob, 'ol', 'alice Hello Bob');
  await shows(bob, 'ul', 'alice herebob ');
  await shot(bob, 'react-example');
});
