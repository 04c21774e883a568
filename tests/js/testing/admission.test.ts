/** What the server in memory does to connections that break its rules: raw sockets, virtual time. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PermissionDenied, PubSubError } from '../../../js/src/index.js';
import { type Identity, MemoryServer } from '../../../js/src/testing/index.js';

type Frame = Readonly<Record<string, unknown>>;

/** A socket of a server, and what has arrived on it. */
async function open(server: MemoryServer) {
  const { WebSocket: Socket } = server.options;
  assert.ok(Socket);
  const socket = new Socket(server.url);
  const frames: Frame[] = [];
  let closed: number | undefined;
  socket.addEventListener('message', (({ data }: { data: string }) => {
    frames.push(JSON.parse(data));
  }) as never);
  socket.addEventListener('close', (({ code }: { code: number }) => {
    closed = code;
  }) as never);
  await server.clock.advance(10);
  return {
    frames,
    code: () => closed,
    send: async (frame: object): Promise<void> => {
      socket.send(JSON.stringify(frame));
      await server.clock.advance(10);
    },
    errors: () => frames.filter(({ code }) => code).map(({ code }) => code),
  };
}

test('a connection that does not authenticate in time is closed', async () => {
  await using server = await new MemoryServer({ authDeadline: 1_000 }).start();
  const silent = await open(server);
  await server.clock.advance(900);
  assert.equal(silent.code(), undefined);
  await server.clock.advance(200);
  assert.deepEqual([silent.errors(), silent.code()], [['auth_timeout'], 4401]);
});

test('a connection stays open while it answers pings, and ends with the idle timeout when it does not', async () => {
  const settings = { serverPingInterval: 1_000, presenceTimeout: 3_000 };
  await using server = await new MemoryServer(settings).start();
  const quiet = await open(server);
  await quiet.send({ type: 'auth', token: server.token('alice') });
  await server.clock.advance(10_000);
  assert.equal(quiet.code(), undefined);
  {
    using _held = server.frozen();
    await server.clock.advance(3_500);
  }
  await server.clock.advance(10);
  assert.equal(quiet.code(), 4408);
});

test('a client that connects again with its id replaces its old connection', async () => {
  await using server = await new MemoryServer().start();
  const old = await open(server);
  await old.send({ type: 'auth', token: server.token('alice') });
  const id = old.frames[0]?.['client_id'];
  const fresh = await open(server);
  await fresh.send({ type: 'auth', token: server.token('alice'), client_id: id });
  assert.equal(fresh.frames[0]?.['client_id'], id);
  assert.deepEqual([old.errors(), old.code()], [['replaced'], 4409]);
  assert.equal(server.connections, 1);
});

test('a renewed token of another user is rejected', async () => {
  await using server = await new MemoryServer().start();
  const socket = await open(server);
  await socket.send({ type: 'auth', token: server.token('alice') });
  await socket.send({ type: 'auth', token: server.token('bob') });
  assert.deepEqual(socket.errors(), ['token_invalid']);
});

test('a renewed token ends the subscriptions that it no longer allows', async () => {
  const rules = {
    maySubscribe: ({ orgs }: { readonly orgs: readonly string[] }, topic: string) =>
      topic === 'open.a' || orgs.includes('acme'),
  };
  await using server = await new MemoryServer({ rules }).start();
  const socket = await open(server);
  await socket.send({ type: 'auth', token: server.token('alice', { orgs: ['acme'] }) });
  await socket.send({ type: 'subscribe', topics: ['open.a', 'org.acme'] });
  await socket.send({ type: 'auth', token: server.token('alice') });
  assert.deepEqual(
    socket.frames.filter(({ type }) => type === 'error').map(({ code, topic }) => [code, topic]),
    [['forbidden', 'org.acme']],
  );
  // The permission comes back, the subscription does not.
  await socket.send({ type: 'auth', token: server.token('alice', { orgs: ['acme'] }) });
  await server.publish('org.acme', { data: 'hidden' });
  await server.publish('open.a', { data: 'shown' });
  await server.clock.advance(10);
  const messages = socket.frames.filter(({ type }) => type === 'message') as unknown as {
    message: { data: unknown };
  }[];
  assert.deepEqual(
    messages.map(({ message }) => message.data),
    ['shown'],
  );
});

test('rules decide by the claims of the token', async () => {
  const rules = {
    maySubscribe: (identity: Identity, topic: string) => {
      const { orgs, sessionsOwned, sessionsShared, agents } = identity;
      return [...orgs, ...sessionsOwned, ...sessionsShared, ...agents].includes(topic);
    },
  };
  await using server = await new MemoryServer({ rules }).start();
  const claims = {
    orgs: ['org'],
    sessionsOwned: ['owned'],
    sessionsShared: ['shared'],
    agents: ['agent'],
  };
  const ps = server.client({ token: server.token('alice', claims) });
  const stranger = server.client({ token: server.token('mallory') });
  for (const topic of ['org', 'owned', 'shared', 'agent']) {
    await ps.subscribe(topic);
    await assert.rejects(stranger.subscribe(topic), PermissionDenied);
  }
});

test('a batch above the limit is rejected as a whole', async () => {
  await using server = await new MemoryServer({ maxBatch: 2 }).start();
  const socket = await open(server);
  await socket.send({ type: 'auth', token: server.token('alice') });
  const messages = [1, 2, 3].map((data) => ({ topic: 'a.b', type: 'message', data }));
  await socket.send({ type: 'publish', messages, ref: '1' });
  assert.deepEqual(socket.errors(), ['invalid_frame']);
  assert.equal(server.stats.published, 0);
  await socket.send({ type: 'publish', messages: messages.slice(1), ref: '2' });
  assert.equal(server.stats.published, 2);
});

test('presence is published only as an update, on a connection, to a topic that you may read', async () => {
  const rules = { maySubscribe: (_: unknown, topic: string) => topic !== 'secret.a' };
  await using server = await new MemoryServer({ rules }).start();
  const socket = await open(server);
  await socket.send({ type: 'auth', token: server.token('alice') });
  const publish = (topic: string, type: string, data: unknown) =>
    socket.send({ type: 'publish', message: { topic, type, data } });
  await publish('a.b', 'presence.join', {});
  await publish('secret.a', 'presence.update', {});
  await publish('a.b', 'presence.update', 'typing');
  assert.deepEqual(socket.errors(), ['forbidden', 'forbidden', 'invalid_payload']);
  await assert.rejects(
    server.publish('a.b', { type: 'presence.update', data: {} }),
    (error) => error instanceof PubSubError && error.code === 'unsupported',
  );
});
