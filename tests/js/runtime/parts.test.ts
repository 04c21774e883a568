/** Parts of a session that are loaded when they are needed; what comes meanwhile waits. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ConnectionFailed } from '../../../js/src/errors.js';
import { PARTS } from '../../../js/src/runtime/parts.js';
import type { PartName, PartsToEquip } from '../../../js/src/session/parts.js';
import { deferred } from './server.js';
import { turns, virtualClient } from './virtual.js';

/** Have a part loaded in another way while `body` runs. */
async function loading(
  name: PartName,
  load: (usual: () => Promise<PartsToEquip>) => Promise<PartsToEquip>,
  body: () => Promise<void>,
): Promise<void> {
  const usual = PARTS[name];
  const change = (way: () => Promise<PartsToEquip>) => Object.assign(PARTS, { [name]: way });
  change(() => load(usual));
  try {
    await body();
  } finally {
    change(usual);
  }
}

const broken = () => Promise.reject(new ConnectionFailed('A part of the client did not load.'));

test('what comes while a part is loading waits for it, in order', async () => {
  const { ps, peer } = virtualClient();
  const seen: unknown[] = [];
  await ps.subscribe('a.b', { onMessage: ({ data }) => seen.push(data) });
  const gate = deferred<void>();
  let loads = 0;
  const late = (usual: () => Promise<PartsToEquip>) => {
    loads += 1;
    return gate.promise.then(usual);
  };
  await loading('presence', late, async () => {
    const second = ps.subscribe('c.d', { presence: true });
    for (const data of [1, 2, 3]) peer.socket.receive(peer.message('a.b', data));
    await turns();
    assert.deepEqual(seen, []);
    assert.equal(peer.socket.frames('subscribe').length, 1);
    gate.resolve();
    await second;
    await turns();
  });
  assert.deepEqual(seen, [1, 2, 3]);
  assert.equal(loads, 1);
  assert.equal(peer.socket.frames('subscribe')[1]?.['presence'], true);
  await ps.close();
});

test('a plain server is spoken to as one once that part is there', async () => {
  const { ps, peer } = virtualClient();
  peer.hello = () => ({});
  const seen: unknown[] = [];
  await ps.subscribe('a.b', { onMessage: ({ data }) => seen.push(data) });
  assert.deepEqual(peer.socket.frames('subscribe'), [{ type: 'subscribe', topics: ['a.b'] }]);
  peer.socket.receive(peer.message('a.b', 1));
  await turns();
  assert.deepEqual(seen, [1]);
  await ps.close();
});

test('a part that does not load ends the subscription that needs it, and no other', async () => {
  const { ps, peer } = virtualClient();
  const seen: unknown[] = [];
  await ps.subscribe('a.b', { onMessage: ({ data }) => seen.push(data) });
  await loading('presence', broken, async () => {
    await assert.rejects(ps.subscribe('c.d', { presence: true }), {
      code: 'connection_failed',
      message: 'A part of the client did not load.',
    });
  });
  peer.socket.receive(peer.message('a.b', 1));
  await turns();
  assert.deepEqual(seen, [1]);
  const again = await ps.subscribe('c.d', { presence: true });
  again.unsubscribe();
  await ps.close();
});

test('a part that does not load refuses the publish that needs it, and no other', async () => {
  const { ps } = virtualClient();
  await ps.connect();
  const two = [
    ['a.b', { type: 'x', data: 1 }],
    ['a.b', { type: 'x', data: 2 }],
  ] as const;
  await loading('rare', broken, async () => {
    const results = await ps.publishMany(two).then(
      (each) => each.map((one) => (one instanceof Error ? one : undefined)),
      (error: unknown) => [error],
    );
    for (const error of results)
      assert.equal((error as ConnectionFailed).code, 'connection_failed');
  });
  const published = await ps.publishMany(two);
  assert.equal(published.length, 2);
  await ps.close();
});

test('a connection whose part does not load in time is given up and tried again', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  peer.hello = () => ({});
  const never = () => new Promise<PartsToEquip>(() => {});
  await loading('plain', never, async () => {
    ps.connect().catch(() => {});
    await turns();
    assert.equal(ps.state, 'authenticating');
    await clock.advance(5_001);
    assert.equal(ps.state, 'reconnecting');
    assert.equal(peer.socket.closed, 4000);
  });
  await clock.advance(60_000);
  assert.equal(ps.state, 'connected');
  await ps.close();
});
