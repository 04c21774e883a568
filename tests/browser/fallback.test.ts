import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { Page, Request } from 'playwright-core';

import {
  addresses,
  addressesAskedFor,
  atEnd,
  openPage,
  openProfile,
  type Server,
  serveSite,
  shot,
  startServer,
  until,
} from './harness.js';
import type {} from './pages/reader.js';
import { GENEROUS, publishNumbers } from './publisher.js';

const TOPIC = 'demo.numbers';

/** A proxy that rejects WebSocket upgrades, as in some networks. */
async function refuser(t: TestContext): Promise<{ url: string; refused: () => number }> {
  let refused = 0;
  const proxy = createServer((_request, response) => response.writeHead(404).end());
  proxy.on('upgrade', (_request, socket) => {
    refused += 1;
    socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  atEnd(t, () => proxy.close());
  return {
    url: `ws://127.0.0.1:${(proxy.address() as AddressInfo).port}/ws`,
    refused: () => refused,
  };
}

/** Read, publish, lose the connection and read again, all over HTTP with the token in a header. */
async function provesItself(
  t: TestContext,
  server: Server,
  page: Page,
  seen: Request[],
  token: string,
) {
  await until(page, () => globalThis.reader?.ready);
  const publisher = publishNumbers(t, server, TOPIC);
  await until(page, () => reader.got.length > 10);
  await server.fault({ fault: 'drop', user: 'alice' });
  await until(page, () => reader.states.filter(([state]) => state === 'connected').length > 1);
  const numbers = await publisher.stop();
  await until(page, (count) => reader.got.length >= count, numbers.length);
  const published = await page.evaluate(
    (topic) => reader.ps.publish(topic, { data: { index: -1 } }),
    TOPIC,
  );
  assert.equal(published.seq !== undefined, true);
  await until(page, () => reader.got.at(-1) === -1);
  assert.deepEqual(await page.evaluate(() => reader.got), [...numbers, -1]);
  assert.deepEqual(await page.evaluate(() => reader.gaps), []);

  const asked = seen.filter((request) => request.url().startsWith(server.http));
  const streams = asked.filter((request) => request.url().includes('/v1/subscribe'));
  assert(streams.length >= 2, 'an event stream before and after the cut');
  for (const request of asked) {
    if (request.method() === 'OPTIONS') continue;
    const { authorization } = await request.allHeaders();
    assert.equal(authorization, `Bearer ${token}`, request.url());
  }
  for (const address of addressesAskedFor(page.context())) {
    assert(!address.includes(token), 'the token stands in an address');
  }
}

test('if a proxy rejects WebSockets, the page continues over server-sent events', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  const proxy = await refuser(t);
  const site = await serveSite(t, { entry: 'pages/reader.ts' });
  const profile = await openProfile(t);
  const seen: Request[] = [];
  profile.on('request', (request) => seen.push(request));
  const token = server.token('--user', 'alice');
  const options = { ...addresses(server), url: proxy.url, token };
  const page = await openPage(t, site, { profile, given: { options, topic: TOPIC } });
  await provesItself(t, server, page, seen, token);
  assert(proxy.refused() >= 2);
  await shot(page, 'sse-behind-a-proxy');
});

test('if the policy of the page forbids sockets, it continues over server-sent events', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  const policy = `default-src 'self' 'unsafe-inline' data:; connect-src 'self' ${server.http}`;
  const site = await serveSite(t, { entry: 'pages/reader.ts', policy });
  const profile = await openProfile(t);
  const seen: Request[] = [];
  profile.on('request', (request) => seen.push(request));
  const token = server.token('--user', 'alice');
  const options = { ...addresses(server), token };
  const page = await openPage(t, site, {
    profile,
    mayFail: true,
    given: { options, topic: TOPIC },
  });
  await provesItself(t, server, page, seen, token);
  const [[, reason = ''] = []] = await page.evaluate(() =>
    reader.states.filter(([state]) => state === 'reconnecting'),
  );
  assert.match(reason, /cannot be reached: connect-src of the page forbids it\.$/);
  await shot(page, 'sse-by-policy');
});

test('if the policy of the page forbids both addresses, the errors name it', async (t) => {
  const server = await startServer(t, ...GENEROUS);
  const policy = `default-src 'self' 'unsafe-inline' data:; connect-src 'self'`;
  const site = await serveSite(t, { entry: 'pages/reader.ts', policy });
  const options = { ...addresses(server), token: server.token('--user', 'alice') };
  const page = await openPage(t, site, { mayFail: true, given: { options, topic: TOPIC } });
  await until(page, () => reader.states.some(([, reason]) => reason.includes('connect-src')));
  const remedies = await page.evaluate(() =>
    Promise.all(
      [
        reader.ps.connect({ timeout: 10 }),
        reader.ps.occupancy('demo.numbers', { timeout: 5_000 }),
      ].map((call) => call.then(String, ({ remedy }) => String(remedy))),
    ),
  );
  assert.match(remedies[0] ?? '', /`connect-src` of the page's Content-Security-Policy/);
  assert.match(
    remedies[1] ?? '',
    /Check that the server is running\. The console of the browser names the reason/,
  );
});
