import assert from 'node:assert/strict';
import { test } from 'node:test';

import { addresses, openPage, shot, startServer, until } from './harness.js';

declare const got: unknown[];

test('a page receives what another client publishes', async (t) => {
  const server = await startServer(t);
  const page = await openPage(t, {
    entry: `
      import { PubSub } from '@hanzoai/pubsub';
      const ps = new PubSub(given.options);
      window.got = [];
      await ps.subscribe('demo.1', { onMessage: (m) => {
        got.push(m.data);
        document.body.append(JSON.stringify(m));
      } });
      document.title = 'ready';`,
    given: { options: { ...addresses(server), token: server.token('--user', 'alice') } },
  });
  await until(page, () => document.title === 'ready');
  const bob = server.client({ token: server.token('--user', 'bob') });
  await bob.publish('demo.1', { data: 'from Node' });
  await until(page, () => got.length > 0);
  assert.deepEqual(await page.evaluate(() => got), ['from Node']);
  await shot(page, 'a-message');
});
