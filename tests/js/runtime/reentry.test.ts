/** A logger and a token callback may use the client that calls them. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { PubSub } from '../../../js/src/index.js';
import { turns, virtualClient } from './virtual.js';

const silent = { warn: () => {}, error: () => {} };

for (const state of ['connecting', 'authenticating', 'connected']) {
  test(`a logger that closes the client when it is ${state} leaves no timer`, async () => {
    const given: { ps?: PubSub } = {};
    const debug = (text: string): void => {
      if (text.includes(`-> ${state}`)) void given.ps?.close({ timeout: 0 });
    };
    const { ps, peer, clock } = virtualClient({ logger: { ...silent, debug } });
    given.ps = ps;
    // It may have connected before it was closed.
    await ps.connect().catch(() => {});
    await turns();
    assert.equal(ps.state, 'closed');
    assert.equal(clock.pending, 0);
    assert.ok(peer.sockets.every(({ closed }) => closed !== undefined));
  });
}

test('a logger that publishes is told once that there is no WebSocket', async () => {
  const given: { ps?: PubSub } = {};
  const published: Promise<unknown>[] = [];
  const warn = (text: string): void => {
    if (given.ps && /no WebSocket/.test(text)) published.push(given.ps.publish('log', { data: 1 }));
  };
  const logger = { ...silent, warn };
  const { ps, peer, clock } = virtualClient({ logger }, { hasWebSocket: () => false });
  given.ps = ps;
  peer.isDown = true;
  const connecting = ps.connect();
  await turns();
  peer.isDown = false;
  await clock.advance(5_000);
  await connecting;
  await Promise.all(published);
  assert.equal(published.length, 1);
  await ps.close();
});

test('a token callback that closes the client leaves no timer', async () => {
  const given: { ps?: PubSub } = {};
  const getToken = async (): Promise<string> => {
    void given.ps?.close({ timeout: 0 });
    return 'x';
  };
  const { ps, clock } = virtualClient({ getToken });
  given.ps = ps;
  await assert.rejects(ps.connect(), { name: 'ClosedError' });
  await turns();
  assert.equal(ps.state, 'closed');
  assert.equal(clock.pending, 0);
});
