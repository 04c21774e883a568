/** Tests of `score.ts` without sockets or waiting. Run `npm test`. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MemoryServer } from '@hanzoai/pubsub/testing';

import { Score } from './score.js';

test('the score is right after a reconnect that lost something', async () => {
  await using server = await new MemoryServer().start();
  const score = new Score();
  await score.follow(server.client(), async () => 7);
  await server.publish('demo.score', { data: { points: 3 } });
  const down = server.refusing(); // the network is down
  await server.publish('demo.score', { data: { points: 4 } });
  server.forgetHistory(); // the server retains none of it
  down.end();
  await server.clock.advanceUntil(() => score.total === 7);
  await server.publish('demo.score', { data: { points: 1 } });
  await server.clock.settle();
  assert.equal(score.total, 8);
});

test('the score is right after a short break, too, and nothing is loaded', async () => {
  await using server = await new MemoryServer().start();
  const score = new Score();
  await score.follow(server.client(), () => assert.fail('it was loaded'));
  server.cut();
  await server.publish('demo.score', { data: { points: 4 } });
  await server.clock.advanceUntil(() => score.total === 4);
});
