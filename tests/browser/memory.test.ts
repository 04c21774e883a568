import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CDPSession } from 'playwright-core';

import { addresses, developerTools, openPage, type Server, startServer, until } from './harness.js';
import { GENEROUS } from './publisher.js';

declare const counted: { count: number; gaps: number };

const BATCH = 500;

/** Bytes of the page's heap that are in use, after a collection. */
async function heap(tools: CDPSession): Promise<number> {
  await tools.send('HeapProfiler.collectGarbage');
  return (await tools.send('Runtime.getHeapUsage')).usedSize;
}

async function publish(server: Server, messages: number): Promise<void> {
  const client = server.client({ token: server.token('--user', 'publisher', '--service') });
  const data = { text: 'x'.repeat(200) };
  for (let sent = 0; sent < messages; sent += BATCH) {
    const results = await client.publishMany(
      Array.from({ length: BATCH }, (_, each) => [`demo.${each % 100}`, { data }] as const),
    );
    assert.equal(results.filter((result) => result instanceof Error).length, 0);
  }
}

test('50,000 messages leave the heap of a page as it was', async (t) => {
  const server = await startServer(t, ...GENEROUS, '--history-max-messages', '10');
  const page = await openPage(t, {
    entry: `
      import { PubSub } from '@hanzoai/pubsub';
      const ps = new PubSub(given.options);
      window.counted = { count: 0, gaps: 0 };
      await ps.subscribe('demo.*', {
        queue: { messages: 100_000, bytes: 1 << 28 },
        onMessage: () => { counted.count += 1; },
        onGap: () => { counted.gaps += 1; },
      });
      document.title = 'ready';`,
    given: { options: { ...addresses(server), token: server.token('--user', 'alice') } },
  });
  await until(page, () => document.title === 'ready');
  const tools = await developerTools(page);
  await publish(server, 5_000);
  await until(page, () => counted.count === 5_000);
  const before = await heap(tools);
  await publish(server, 50_000);
  await until(page, () => counted.count === 55_000);
  const after = await heap(tools);
  assert.equal(await page.evaluate(() => counted.gaps), 0);
  // What was kept of each message would be ten megabytes and more; the page has two or so.
  assert(after < before * 1.25, `${before} bytes before, ${after} after`);
});
