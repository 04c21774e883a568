/** Token requests: in time, one at a time, and shared by socket and HTTP. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inspect } from 'node:util';

import { AuthRefused, type TokenContext } from '../../../js/src/index.js';
import { bounded, deferred, Server, take } from './server.js';
import { CURRENT, turns, virtualClient } from './virtual.js';

let server: Server;

before(async () => {
  server = await Server.start('--history-max-messages', '1000');
});
after(() => server.stop());

test('no inspector and no serializer shows a token', async () => {
  const token = 'hk-secret';
  const { ps } = virtualClient({ token });
  const sub = await ps.subscribe('a.b', { onMessage: () => {} });
  for (const one of [ps, ps.topic('a.b'), sub, ps.states()]) {
    assert.ok(!inspect(one, { depth: 20 }).includes(token), inspect(one, { depth: 20 }));
  }
  for (const one of [ps, ps.topic('a.b'), { ...ps }]) {
    assert.ok(!JSON.stringify(one).includes(token));
  }
  await ps.close();
});

test('a token with a lifetime of one second is renewed in time, repeatedly', async () => {
  const asked: string[] = [];
  const { ps, peer, clock } = virtualClient({
    getToken: ({ reason }) => {
      asked.push(reason);
      return `token-${asked.length}`;
    },
  });
  const ends = (): object => ({ server_time: clock.wallMs(), expires_at: clock.wallMs() + 1_000 });
  peer.hello = () => ({ ...CURRENT, ...ends() });
  await ps.connect();
  for (let tenth = 0; tenth < 100; tenth += 1) await clock.advance(100);
  assert.equal(peer.sockets.length, 1, 'the connection stays');
  assert.equal(asked[0], 'connect');
  assert.deepEqual(new Set(asked.slice(1)), new Set(['expiring']));
  assert.ok(asked.length >= 10, `${asked.length} tokens in ten seconds`);
  assert.deepEqual(
    peer.socket.frames('auth').map(({ token }) => token),
    asked.map((_, n) => `token-${n + 1}`),
  );
  await ps.close();
});

test('a token that expired while offline is not used', async () => {
  const asked: string[] = [];
  const { ps, peer, clock } = virtualClient({
    transport: 'websocket',
    retry: { base: 200, cap: 200 },
    getToken: ({ reason }) => {
      asked.push(reason);
      return `token-${asked.length}`;
    },
  });
  // Only the server knows their lifetime.
  peer.hello = () => {
    const now = clock.wallMs();
    return { ...CURRENT, server_time: now, expires_at: now + 1_000 };
  };
  await ps.connect();
  peer.isDown = true;
  peer.socket.drop();
  await clock.advance(10_000);
  assert.ok(asked.length >= 5, `${asked.length} tokens in ten seconds`);
  peer.isDown = false;
  await clock.advance(300);
  assert.equal(ps.state, 'connected');
  assert.equal(peer.socket.frames('auth')[0]?.['token'], `token-${asked.length}`);
  await ps.close();
});

test('tokens of two seconds are renewed for longer than the idle timeout, and nothing is lost', async () => {
  const reasons: string[] = [];
  const fifth = deferred<void>();
  const reader = server.client({
    transport: 'websocket',
    getToken: ({ reason }) => {
      reasons.push(reason);
      if (reasons.length === 5) fifth.resolve();
      return server.token('--user', 'carol', '--org', 'acme', '--service', '--ttl', '2');
    },
  });
  const writer = server.client({
    token: server.token('--user', 'worker', '--org', 'acme', '--service'),
  });
  const sub = await reader.subscribe('demo.short');
  let sent = 0;
  let isOver = false;
  const writing = (async () => {
    while (!isOver) {
      await writer.publish('demo.short', { data: sent });
      sent += 1;
    }
  })();
  await bounded(fifth.promise, 'the fifth token');
  isOver = true;
  await writing;
  const got = await take(sub, sent);
  assert.deepEqual(
    got.map(({ data }) => data),
    Array.from({ length: sent }, (_, n) => n),
  );
  assert.equal(sub.stats.gaps, 0);
  await Promise.all([reader.close(), writer.close()]);
});

test('socket and HTTP share one call for a token', async () => {
  const asked: TokenContext[] = [];
  const answer = deferred<string>();
  const { ps } = virtualClient({
    getToken: (context) => {
      asked.push(context);
      return answer.promise;
    },
    fetch: async (_, init) => {
      assert.equal(new Headers(init?.headers).get('Authorization'), 'Bearer shared');
      return new Response('{"topic":"a.b","members":[]}');
    },
  });
  const connecting = ps.connect();
  const members = ps.presence('a.b');
  await turns();
  assert.equal(asked.length, 1);
  answer.resolve('Bearer shared');
  await connecting;
  assert.deepEqual(await members, []);
  assert.equal(asked.length, 1);
  await ps.close();
});

test('the signal of a token request is aborted when no call waits for it', async () => {
  let given: AbortSignal | undefined;
  const { ps } = virtualClient({
    getToken: (_, { signal }) => {
      given = signal;
      return new Promise<never>(() => {});
    },
  });
  const abort = new AbortController();
  const members = assert.rejects(ps.presence('a.b', { signal: abort.signal }));
  const connecting = assert.rejects(ps.connect(), { code: 'closed' });
  await turns();
  abort.abort();
  await members;
  assert.equal(given?.aborted, false, 'the socket still waits');
  await ps.close({ timeout: 0 });
  await connecting;
  await turns();
  assert.equal(given?.aborted, true);
});

test('an exception of `getToken` is reported without its text, and retried', async () => {
  const errors: string[] = [];
  let calls = 0;
  const { ps, clock } = virtualClient({
    getToken: () => {
      calls += 1;
      if (calls === 1) throw new TypeError('secret');
      if (calls === 2) return 7 as never;
      if (calls === 3) throw 'secret';
      return 'good';
    },
  });
  ps.on('error', (error) => errors.push(error.message));
  const connecting = ps.connect();
  await clock.advance(10_000);
  await connecting;
  assert.equal(calls, 4);
  assert.match(errors[0] ?? '', /^getToken threw TypeError at .*tokens\.test\.[jt]s:\d+:\d+\)?\.$/);
  assert.match(errors[1] ?? '', /not a string/);
  assert.equal(errors[2], 'getToken threw string.');
  await ps.close();
  const { ps: refusing } = virtualClient({
    getToken: () => {
      throw new AuthRefused('signed out');
    },
  });
  await assert.rejects(refusing.connect(), { code: 'auth_refused', message: 'signed out' });
});
