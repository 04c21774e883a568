/** Updates of the own presence: each call learns its outcome, and the last update wins. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import {
  ClosedError,
  InvalidPayload,
  NotFound,
  OperationTimeout,
  type PubSubError,
  QueueFull,
} from '../../../js/src/index.js';
import { MemoryServer } from '../../../js/src/testing/index.js';
import { Server } from './server.js';
import { turns, virtualClient } from './virtual.js';

let server: Server;

before(async () => {
  server = await Server.start('--publish-rate-user', '5');
});
after(() => server.stop());

test('many updates in a row end with the last one, and no call and no listener receives a rate limit error', async () => {
  const ps = server.client({ token: server.token('--user', 'alice') });
  const problems: Error[] = [];
  ps.on('error', (error) => void problems.push(error));
  await ps.subscribe('demo.typing', { onMessage: () => {}, onPresence: () => {} });
  const typing = Array.from({ length: 15 }, () =>
    ps.updatePresence('demo.typing', { status: 'typing' }),
  );
  await Promise.all([...typing, ps.updatePresence('demo.typing', { status: 'here' })]);
  assert.deepEqual(
    (await ps.presence('demo.typing')).map(({ status }) => status),
    ['here'],
  );
  for (let n = 0; n < 8; n += 1) await ps.updatePresence('demo.typing', { status: `at ${n}` });
  assert.deepEqual(
    (await ps.presence('demo.typing')).map(({ status }) => status),
    ['at 7'],
  );
  assert.deepEqual(problems, []);
  await ps.close();
});

test('an update of one topic more than the client remembers is rejected, and the others wait', async () => {
  const { ps } = virtualClient({}, { dial: () => new Promise(() => {}) });
  let settled = 0;
  const waiting = Array.from({ length: 10_000 }, async (_, n) => {
    const error = await ps.updatePresence(`demo.${n}`, { n }, { timeout: 60_000 }).catch((e) => e);
    settled += 1;
    return error;
  });
  const newest = await ps.updatePresence('demo.newest', { n: 1 }).catch((error) => error);
  assert.ok(newest instanceof QueueFull);
  assert.equal(newest.topic, 'demo.newest');
  assert.match(newest.message, /10,000 topics/);
  const again = ps.updatePresence('demo.0', { n: 2 }).catch((error) => error);
  await turns();
  assert.equal(settled, 0);
  await ps.close({ timeout: 0 });
  for (const error of [...(await Promise.all(waiting)), await again])
    assert.ok(error instanceof ClosedError);
});

test('a rejected update rejects its own call', async () => {
  const ps = server.client({ token: server.token('--user', 'bob') });
  const problems: Error[] = [];
  ps.on('error', (error) => void problems.push(error));
  const nobody = await ps.updatePresence('demo.apart', { status: 'x' }).catch((error) => error);
  assert.ok(nobody instanceof NotFound);
  assert.equal(nobody.topic, 'demo.apart');
  assert.match(nobody.remedy, /^Subscribe to the topic by its name/);
  await ps.subscribe('demo.refusals', { onMessage: () => {}, presence: true });
  const wrong = await ps.updatePresence('demo.refusals', { status: 5 }).catch((error) => error);
  assert.ok(wrong instanceof InvalidPayload);
  assert.match(wrong.message, /^`data\.status` must be a string/);
  await ps.updatePresence('demo.refusals', { status: 'fine' });
  assert.deepEqual(problems, []);
  await ps.close();
});

test('an update that is not answered in time reports it, and is sent again', async () => {
  const { ps, peer, clock } = virtualClient();
  await ps.subscribe('a.b');
  peer.silent.add('presence.update');
  const late = ps.updatePresence('a.b', { status: 'x' }, { timeout: 300 }).then(
    () => assert.fail('no answer is expected'),
    (error: PubSubError) => error,
  );
  await clock.advance(301);
  const error = await late;
  assert.ok(error instanceof OperationTimeout && error.outcomeUnknown);
  assert.match(error.message, /within 300 ms\. State: connected\.$/);
  peer.socket.drop();
  await clock.advance(5_000);
  await turns();
  assert.deepEqual(
    peer.socket.frames('presence.update').map(({ data }) => data),
    [{ status: 'x' }],
  );
  await ps.close();
});

test('an update that is rejected after its call has ended is an error of the client', async () => {
  const { ps, peer, clock } = virtualClient();
  const errors: unknown[] = [];
  ps.on('error', (error) => void errors.push(error));
  await ps.subscribe('a.b');
  peer.silent.add('presence.update');
  const ended = assert.rejects(
    ps.updatePresence('a.b', { status: 'x' }, { timeout: 300 }),
    OperationTimeout,
  );
  await clock.advance(301);
  await ended;
  const [{ ref } = { ref: undefined }] = peer.socket.frames('presence.update');
  peer.socket.receive({ type: 'error', code: 'not_found', message: 'No member.', ref });
  await turns();
  const [error] = errors;
  assert.ok(error instanceof NotFound && errors.length === 1);
  assert.equal(error.topic, 'a.b');
  await ps.close();
});

test('an update that is rejected after its signal is aborted is an error of the client', async () => {
  const { ps, peer } = virtualClient();
  const errors: unknown[] = [];
  ps.on('error', (error) => void errors.push(error));
  await ps.subscribe('a.b');
  peer.silent.add('presence.update');
  const over = new AbortController();
  const ended = assert.rejects(
    ps.updatePresence('a.b', { status: 'x' }, { signal: over.signal }),
    /^enough$/,
  );
  await turns();
  over.abort('enough');
  await ended;
  const [{ ref } = { ref: undefined }] = peer.socket.frames('presence.update');
  peer.socket.receive({ type: 'error', code: 'not_found', message: 'No member.', ref });
  await turns();
  const [error] = errors;
  assert.ok(error instanceof NotFound && errors.length === 1);
  assert.equal(error.topic, 'a.b');
  await ps.close();
});

test('a signal ends the wait for an update, which is still sent', async () => {
  const { ps, peer, clock } = virtualClient();
  await ps.subscribe('a.b');
  peer.isDown = true;
  peer.socket.drop();
  await turns();
  const over = new AbortController();
  const ended = assert.rejects(
    ps.updatePresence('a.b', { status: 'x' }, { signal: over.signal }),
    /^enough$/,
  );
  await turns();
  over.abort('enough');
  await ended;
  peer.isDown = false;
  await clock.advance(5_000);
  assert.deepEqual(
    peer.socket.frames('presence.update').map(({ data }) => data),
    [{ status: 'x' }],
  );
  await ps.close();
});

test('waiting updates reject when the client ends', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  peer.silent.add('presence.update');
  const reported = assert.rejects(ps.updatePresence('a.b', { status: 'x' }), { code: 'closed' });
  await turns();
  await ps.close({ timeout: 0 });
  await reported;
});

test('a subscription sets presence only on the topics that the server grants', async () => {
  const rules = { maySubscribe: (_: unknown, topic: string) => topic !== 'demo.denied' };
  await using memory = await new MemoryServer({ rules }).start();
  const ps = memory.client({ token: memory.token('alice') });
  const problems: Error[] = [];
  ps.on('error', (error) => void problems.push(error));
  const presence = { status: 'here' };
  const subscribed = ps.subscribe(['demo.granted', 'demo.denied'], { presence });
  await memory.clock.advance(1_000);
  const { denied } = await subscribed;
  assert.deepEqual(
    denied.map(({ topic }) => topic),
    ['demo.denied'],
  );
  const updates = memory.received.filter(({ type }) => type === 'presence.update');
  assert.deepEqual(
    updates.map(({ topic }) => topic),
    ['demo.granted'],
  );
  assert.deepEqual(problems, []);
});
