import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import {
  addresses,
  openPage,
  openProfile,
  type Server,
  serveSite,
  startServer,
  until,
} from './harness.js';

declare const reported: { ready: string; data: unknown[] };

const TOPIC = 'demo.work';

/** A page that runs the client in a worker. The code assigns `port`. */
function page(port: string): string {
  return `
    window.reported = { ready: '', data: [] };
    ${port}
    port.onmessage = ({ data }) => {
      if ('ready' in data) reported.ready = data.ready;
      else reported.data.push(data.data);
    };
    port.postMessage(given);`;
}

function given(server: Server): object {
  return {
    options: { ...addresses(server), token: server.token('--user', 'alice') },
    topic: TOPIC,
  };
}

/** Check that three messages reach the pages, although the connection is cut. */
async function getThrough(server: Server, pages: readonly Page[]): Promise<void> {
  for (const page of pages) await until(page, () => reported.ready);
  const bob = server.client({ token: server.token('--user', 'bob') });
  await bob.publish(TOPIC, { data: 1 });
  await server.fault({ fault: 'drop', user: 'alice' });
  await bob.publish(TOPIC, { data: 2 });
  for (const page of pages) {
    await until(page, () => reported.data.length === 2);
    assert.deepEqual(await page.evaluate(() => reported.data), [1, 2]);
  }
}

test('the client runs in a worker', async (t) => {
  const server = await startServer(t);
  const made = await openPage(t, {
    entry: page(`const port = new Worker('/worker.js', { type: 'module' });`),
    programs: { '/worker.js': 'pages/worker.ts' },
    given: given(server),
  });
  await getThrough(server, [made]);
});

test('the client runs in a shared worker: two tabs have one connection', async (t) => {
  const server = await startServer(t);
  const site = await serveSite(t, {
    entry: page(`const { port } = new SharedWorker('/worker.js', { type: 'module' });`),
    programs: { '/worker.js': 'pages/worker.ts' },
  });
  const profile = await openProfile(t);
  const both = [
    await openPage(t, site, { profile, given: given(server) }),
    await openPage(t, site, { profile, given: given(server) }),
  ];
  await getThrough(server, both);
  const ids = await Promise.all(both.map((each) => each.evaluate(() => reported.ready)));
  assert.equal(ids[0], ids[1]);
  const metrics = await (await fetch(`${server.http}/metrics`)).text();
  // The socket of the publisher, and that of the worker.
  assert.match(metrics, /^hanzo_pubsub_connections\{form="socket"\} 2/m);
});
