import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PubSub } from '@hanzoai/pubsub';
import type { CDPSession } from 'playwright-core';
import { addresses, developerTools, openPage, startServer, until } from './harness.js';
import { GENEROUS } from './publisher.js';

declare const counted: { count: number; gaps: number };

const BATCH = 500;

/** Used bytes of the page's heap, after a garbage collection. */
async function heap(tools: CDPSession): Promise<number> {
  await tools.send('HeapProfiler.collectGarbage');
  return (await tools.send('Runtime.getHeapUsage')).usedSize;
}

async function publish(client: PubSub, messages: number): Promise<void> {
  const data = { text: 'x'.repeat(200) };
  for (let sent = 0; sent < messages; sent += BATCH) {
    const results = await client.publishMany(
      Array.from({ length: BATCH }, (_, each) => [`demo.${each % 100}`, { data }] as const),
    );
    assert.equal(results.filter((result) => result instanceof Error).length, 0);
  }
}

test('25,000 messages leave the heap of a page as it was', async (t) => {
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
  const publisher = server.client({ token: server.token('--user', 'publisher', '--service') });
  let before = 0;
  for (let total = 2_500; total <= 30_000; total += 2_500) {
    // Don't outpace the page: the server's queue for it is bounded.
    await publish(publisher, 2_500);
    await until(page, (all) => counted.count === all, total);
    if (total === 5_000) before = await heap(tools);
  }
  const after = await heap(tools);
  assert.equal(await page.evaluate(() => counted.gaps), 0);
  // The payloads of all messages would be more than five megabytes; the page itself uses about two.
  assert(after < before * 1.25, `${before} bytes before, ${after} after`);
});
