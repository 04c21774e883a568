import assert from 'node:assert/strict';
import { test } from 'node:test';

import { addresses, openPage, openProfile, startServer, until } from './harness.js';

declare const got: unknown[];

const TOPIC = 'demo.numbers';

/** A page that subscribes and publishes once, and does not repeat its calls. */
const PAGE = `
  import { PubSub } from '@hanzoai/pubsub';
  const ps = new PubSub(given.options);
  window.got = [];
  const onMessage = ({ data }) => got.push(data);
  await Promise.all([
    ps.subscribe(given.topic, { onMessage }),
    ps.publish(given.topic, { data: 1 }),
  ]);`;

test('calls of a page succeed if its second file loads at a later attempt', async (t) => {
  const server = await startServer(t);
  const profile = await openProfile(t);
  let tries = 0;
  await profile.route(/\/background-\w+\.js$/, (route) => {
    tries += 1;
    return tries === 1 ? route.abort('connectionfailed') : route.continue();
  });
  const page = await openPage(t, {
    entry: PAGE,
    profile,
    given: {
      options: { ...addresses(server), token: server.token('--user', 'alice') },
      topic: TOPIC,
    },
  });
  await until(page, () => got.length);
  assert.deepEqual(await page.evaluate(() => got), [1]);
  assert.equal(tries, 2);
});
