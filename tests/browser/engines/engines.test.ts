/** The client in Firefox and in WebKitGTK: `make test-engines`. Chromium runs many more tests. */

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';

import { addresses, atEnd, type Server, serveSite, startServer } from '../harness.js';
import type {} from '../pages/reader.js';
import type {} from '../pages/recover.js';
import { GENEROUS, publishNumbers } from '../publisher.js';
import { type Engine, type Tab, until } from './engine.js';
import { startFirefox } from './firefox.js';
import { startWebKit } from './webkit.js';

declare global {
  /** What went wrong in the page. */
  var failures: string[];
}

declare const got: number[];

const ENGINES = { Firefox: startFirefox, WebKit: startWebKit };
const TOPIC = 'demo.numbers';

const TAB = `
  import { PubSub } from '@hanzoai/pubsub';
  window.got = [];
  const ps = new PubSub({ ...given.options, shareTabs: true });
  await ps.subscribe(given.topic, { onMessage: ({ data }) => got.push(data.index) });
  document.title = 'ready';`;

/** Start the browser until the test ends. */
async function launch(t: TestContext, start: () => Promise<Engine>): Promise<Engine> {
  const engine = await start();
  atEnd(t, () => engine.stop());
  return engine;
}

/** Serve a page that has the global `given` and records its errors in `failures`. */
async function serve(
  t: TestContext,
  server: Server,
  entry: string,
  options: object = {},
  policy?: string,
): Promise<string> {
  const token = server.token('--user', 'alice');
  const given = { options: { ...addresses(server), token, ...options }, topic: TOPIC };
  const html = `<script>
    globalThis.given = ${JSON.stringify(given)};
    globalThis.failures = [];
    addEventListener('error', ({ message }) => failures.push(message));
    addEventListener('unhandledrejection', ({ reason }) => failures.push(String(reason)));
  </script>`;
  const { url } = await serveSite(t, { entry, html, ...(policy && { policy }) });
  return url;
}

const isReader = (tab: Tab): Promise<void> => until(tab, () => globalThis.reader?.ready, null);

function connected(tab: Tab, times: number): Promise<void> {
  return until(
    tab,
    (times) => reader.states.filter(([state]) => state === 'connected').length >= times,
    times,
  );
}

/** Wait until the page has more numbers than now. */
async function goesOn(tab: Tab): Promise<void> {
  const before = await tab.evaluate(() => reader.got.length);
  await until(tab, (before) => reader.got.length > before, before);
}

/** The page has every number once, in order, and reported no gap and no error. */
async function gotAll(tab: Tab, numbers: readonly number[]): Promise<void> {
  await until(tab, (count) => reader.got.length >= count, numbers.length);
  const { got, gaps, failures } = await tab.evaluate(() => {
    const { got, gaps } = reader;
    return { got, gaps, failures: globalThis.failures };
  });
  assert.deepEqual({ got, gaps, failures }, { got: numbers, gaps: [], failures: [] });
}

/** Open sockets at the server. */
async function sockets(server: Server): Promise<number> {
  const text = await (await fetch(`${server.http}/metrics`)).text();
  return Number(/^hanzo_pubsub_connections\{form="socket"\} (\d+)/m.exec(text)?.[1]);
}

for (const [name, startEngine] of Object.entries(ENGINES)) {
  for (const transport of ['websocket', 'sse']) {
    test(`${name}: cuts and reloads (${transport}) lose and repeat nothing`, async (t) => {
      const server = await startServer(t, ...GENEROUS);
      const engine = await launch(t, startEngine);
      const tab = await engine.open(await serve(t, server, 'pages/reader.ts', { transport }));
      await isReader(tab);
      const publisher = publishNumbers(t, server, TOPIC);
      for (let cut = 1; cut <= 3; cut += 1) {
        await goesOn(tab);
        await server.fault({ fault: 'drop', user: 'alice', after: cut * 3 });
        await connected(tab, 2 * cut);
        await goesOn(tab);
        await server.fault({ fault: 'drop', user: 'alice' });
        await connected(tab, 2 * cut + 1);
      }
      for (let time = 1; time <= 3; time += 1) {
        await goesOn(tab);
        await tab.reload();
        await isReader(tab);
      }
      await goesOn(tab);
      await gotAll(tab, await publisher.stop());
    });

    test(`${name}: a reload with \`recover\` (${transport}) continues as the same client`, async (t) => {
      const server = await startServer(t, ...GENEROUS, '--presence-grace', '4000');
      const engine = await launch(t, startEngine);
      const tab = await engine.open(await serve(t, server, 'pages/recover.ts', { transport }));
      const isReady = (): Promise<void> => until(tab, () => globalThis.recovered?.ready, null);
      await isReady();
      const id = await tab.evaluate(() => recovered.ps.clientId);
      const publisher = publishNumbers(t, server, TOPIC);
      for (let time = 1; time <= 3; time += 1) {
        const before = await tab.evaluate(() => recovered.got.length);
        await until(tab, (before) => recovered.got.length > before, before);
        await tab.reload();
        await isReady();
        assert.equal(await tab.evaluate(() => recovered.ps.clientId), id);
      }
      const numbers = await publisher.stop();
      await until(tab, (count) => recovered.got.length >= count, numbers.length);
      const { got, gaps } = await tab.evaluate(() => ({
        got: recovered.got,
        gaps: recovered.gaps,
      }));
      assert.deepEqual({ got, gaps }, { got: numbers, gaps: [] });
    });
  }

  test(`${name}: if a proxy rejects WebSockets, the page continues over server-sent events`, async (t) => {
    const server = await startServer(t, ...GENEROUS);
    const proxy = createServer((_request, response) => response.writeHead(404).end());
    proxy.on('upgrade', (_request, socket) => {
      socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    atEnd(t, () => proxy.close());
    const { port } = proxy.address() as AddressInfo;
    const engine = await launch(t, startEngine);
    const url = `ws://127.0.0.1:${port}/ws`;
    const tab = await engine.open(await serve(t, server, 'pages/reader.ts', { url }));
    await isReader(tab);
    const publisher = publishNumbers(t, server, TOPIC);
    await goesOn(tab);
    await server.fault({ fault: 'drop', user: 'alice' });
    await connected(tab, 2);
    const numbers = await publisher.stop();
    const publish = (topic: string) => reader.ps.publish(topic, { data: { index: -1 } });
    const { seq } = await tab.evaluate(publish, TOPIC);
    assert.equal(typeof seq, 'number');
    await gotAll(tab, [...numbers, -1]);
  });

  test(`${name}: if the policy of the page forbids sockets, it continues over server-sent events`, async (t) => {
    const server = await startServer(t, ...GENEROUS);
    const policy = `default-src 'self' 'unsafe-inline' data:; connect-src 'self' ${server.http}`;
    const engine = await launch(t, startEngine);
    const tab = await engine.open(await serve(t, server, 'pages/reader.ts', {}, policy));
    await isReader(tab);
    const publisher = publishNumbers(t, server, TOPIC);
    await goesOn(tab);
    await gotAll(tab, await publisher.stop());
  });

  test(`${name}: tabs share one socket, and continue when the leader leaves`, async (t) => {
    const server = await startServer(t, ...GENEROUS);
    const url = await serve(t, server, TAB);
    const engine = await launch(t, startEngine);
    const tabs: Tab[] = [];
    const open = async (): Promise<void> => {
      const tab = await engine.open(url);
      await until(tab, () => document.title === 'ready', null);
      tabs.push(tab);
    };
    for (let count = 1; count <= 4; count += 1) await open();
    assert.equal(await sockets(server), 1);
    const publisher = publishNumbers(t, server, TOPIC);
    for (let time = 1; time <= 3; time += 1) {
      await tabs.shift()?.leave();
      await open();
      for (const tab of tabs) {
        const before = await tab.evaluate(() => got.length);
        await until(tab, (before) => got.length > before, before);
      }
    }
    const last = (await publisher.stop()).at(-1) ?? -1;
    for (const tab of tabs) await until(tab, (last) => got.at(-1) === last, last);
    // That of the tabs, and that of the publisher.
    assert.equal(await sockets(server), 2);
    for (const tab of tabs) {
      const { all, failures } = await tab.evaluate(() => ({
        all: got,
        failures: globalThis.failures,
      }));
      const [first = 0] = all;
      assert.deepEqual(
        all,
        Array.from(all, (_, n) => first + n),
      );
      assert.deepEqual(failures, []);
    }
  });
}
