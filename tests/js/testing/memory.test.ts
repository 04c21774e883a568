import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  AuthError,
  Conflict,
  ConnectionFailed,
  InvalidOption,
  InvalidTopic,
  PermissionDenied,
  PubSub,
  PubSubError,
  RateLimited,
  type SubscriptionEvent,
  UsageError,
} from '../../../js/src/index.js';
import { MemoryServer, SystemClock } from '../../../js/src/testing/index.js';

const QUIET = { logger: { warn: () => {}, error: () => {} } };

/** The payloads of messages, and the number of missing messages of a gap. */
function tell(event: SubscriptionEvent): unknown {
  if (event.kind === 'message') return event.message.data;
  return event.kind === 'gap' ? `${event.gap.reason} ${event.gap.missed}` : event.presence.change;
}

async function take<T>(values: AsyncIterable<T>, count: number): Promise<T[]> {
  const iterator = values[Symbol.asyncIterator]();
  const taken: T[] = [];
  while (taken.length < count) {
    const { value } = await iterator.next();
    taken.push(value);
  }
  return taken;
}

test('messages lost while the network was down are reported in their place', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  const sub = await ps.subscribe('chat.1');
  await server.publish('chat.1', { data: 'hello' });
  {
    using _down = server.refusing();
    await server.publish('chat.1', { data: 'lost' });
    server.forgetHistory();
    await server.publish('chat.1', { data: 'kept' });
  }
  await server.clock.advanceUntil(() => ps.state === 'connected');
  await server.publish('chat.1', { data: 'hello again' });
  const described = (await take(sub.events(), 4)).map(tell);
  assert.deepEqual(described, ['hello', 'history_trimmed 1', 'kept', 'hello again']);
});

test('a restarted log is reported', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  const sub = await ps.subscribe('chat.1');
  await server.publish('chat.1', { data: 1 });
  assert.deepEqual((await take(sub.events(), 1)).map(tell), [1]);
  server.cut();
  await server.clock.advance(10);
  server.forgetHistory('chat.1', { positions: true });
  await server.publish('chat.1', { data: 2 });
  await server.clock.advanceUntil(() => ps.state === 'connected');
  assert.deepEqual((await take(sub.events(), 2)).map(tell), ['log_reset undefined', 2]);
});

test('an expiring token is renewed in time, and the client ends if it cannot be renewed', async () => {
  await using server = await new MemoryServer().start();
  const reasons: string[] = [];
  const renewed = server.client({
    getToken: ({ reason }) => {
      reasons.push(reason);
      return server.token('alice', { ttl: 300_000 });
    },
  });
  const fixed = server.client({ token: server.token('bob', { ttl: 10_000 }), ...QUIET });
  await renewed.connect();
  await fixed.connect();
  await server.clock.advance(600_000);
  assert.equal(renewed.state, 'connected');
  assert.deepEqual(reasons.slice(0, 2), ['connect', 'expiring']);
  assert.equal(fixed.state, 'failed');
  server.expireTokens();
  server.cut();
  await server.clock.advance(60_000);
  assert.equal(renewed.state, 'connected');
  await assert.rejects(server.client({ token: 'made-up', ...QUIET }).connect(), AuthError);
});

test('a server rejects connections with code, reason and a time to wait', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  const waits: (number | undefined)[] = [];
  ps.on('state', ({ retryIn }) => void waits.push(retryIn));
  const busy = server.refusing(1013, 'too busy', { retryAfter: 90_000 });
  const connecting = assert.rejects(ps.connect({ timeout: 2_000 }), (error) => {
    return error instanceof ConnectionFailed && /too busy/.test(error.message);
  });
  await server.clock.advance(2_000);
  await connecting;
  busy.end();
  const passed = await server.clock.advanceUntil(() => ps.state === 'connected');
  assert.ok(passed > 80_000, `${passed}`);
  assert.ok(waits.some((wait) => wait !== undefined && wait >= 90_000));
});

test('if no WebSocket can be opened, an event stream works the same', async () => {
  await using server = await new MemoryServer().start();
  using _blocked = server.refusing(undefined, 'no sockets here', { transport: 'websocket' });
  const ps = server.client();
  const subscribing = ps.subscribe('chat.*');
  await server.clock.advanceUntil(() => ps.state === 'connected');
  const sub = await subscribing;
  await ps.publish('chat.1', { data: 'one' });
  await server.publish('chat.2', { data: 'two' });
  assert.deepEqual((await take(sub.events(), 2)).map(tell), ['one', 'two']);
  assert.equal(server.attempts.at(-1), 'sse');
  server.cut();
  await server.publish('chat.1', { data: 'three' });
  await server.clock.advanceUntil(() => ps.state === 'connected');
  assert.deepEqual((await take(sub.events(), 1)).map(tell), ['three']);
});

test('a frozen server answers nothing, and then everything', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  await ps.connect();
  const positions: unknown[] = [];
  {
    using _frozen = server.frozen();
    void ps.publish('a.b', { data: 1 }).then(({ seq }) => positions.push(seq));
    await server.clock.advance(5_000);
    assert.deepEqual(positions, []);
    assert.equal(server.connections, 1);
  }
  await server.clock.settle();
  assert.equal(positions.length, 1);
});

test('a client detects a silent connection, and reconnects', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  await ps.connect();
  const frozen = server.frozen();
  await server.clock.advanceUntil(() => ps.state !== 'connected');
  frozen.end();
  await server.clock.advanceUntil(() => ps.state === 'connected');
  assert.deepEqual(server.attempts.slice(0, 2), ['websocket', 'websocket']);
});

test('a lost answer does not cause a second message', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  const sub = await ps.subscribe('a.b');
  server.loseNext('published');
  const publishing = ps.publish('a.b', { data: 1 });
  await server.clock.settle();
  server.cut();
  await server.clock.advanceUntil(() => ps.state === 'connected');
  assert.equal((await publishing).duplicate, true);
  server.loseNext('published', 5);
  server.loseNothing();
  await ps.publish('a.b', { data: 2 });
  assert.deepEqual((await take(sub.events(), 2)).map(tell), [1, 2]);
  assert.deepEqual([server.stats.published, server.stats.duplicates], [2, 1]);
});

test('two users can use the same message id', async () => {
  await using server = await new MemoryServer().start();
  const [alice, bob] = ['alice', 'bob'].map((user) =>
    server.client({ token: server.token(user) }),
  ) as [PubSub, PubSub];
  const sub = await alice.subscribe('demo.one');
  const same = { data: 1, id: 'msg_one' };
  assert.equal((await bob.publish('demo.one', same)).duplicate, false);
  assert.equal((await alice.publish('demo.one', same)).duplicate, false);
  assert.equal((await alice.publish('demo.one', same)).duplicate, true);
  await assert.rejects(alice.publish('demo.one', { data: 2, id: 'msg_one' }), Conflict);
  assert.deepEqual((await take(sub.events(), 2)).map(tell), [1, 1]);
});

test('a client that reconnects within the grace period does not leave', async () => {
  await using server = await new MemoryServer().start();
  const seen: string[] = [];
  const alice = server.client({ token: server.token('alice') });
  await alice.subscribe('room.1', {
    onPresence: (members, { change }) => {
      seen.push(`${change} ${members.map(({ user_id }) => user_id).join()}`);
    },
  });
  const bob = server.client({ token: server.token('bob') });
  const sub = await bob.subscribe('room.1');
  await server.clock.settle();
  assert.deepEqual(seen, ['snapshot alice', 'join alice,bob']);
  seen.length = 0;
  const { clientId } = bob;
  server.cut();
  await server.clock.advance(4_000);
  assert.equal(bob.state, 'connected');
  assert.equal(bob.clientId, clientId);
  await server.clock.advance(10_000);
  assert.ok(
    seen.every((change) => !change.startsWith('leave')),
    seen.join(),
  );
  await bob.updatePresence('room.1', { status: 'typing' });
  await server.clock.settle();
  assert.equal(seen.at(-1), 'update alice,bob');
  await sub.unsubscribe();
  await server.clock.settle();
  assert.equal(seen.at(-1), 'leave alice');
});

test('a client that does not reconnect leaves after the grace period', async () => {
  await using server = await new MemoryServer({ presenceGrace: 3_000 }).start();
  const watcher = server.client();
  const bob = server.client({ token: server.token('bob') });
  await bob.subscribe('room.1', { onMessage: () => {} });
  await watcher.connect();
  const members = async (): Promise<unknown> =>
    (await watcher.presence('room.1')).map(({ user_id }) => user_id);
  assert.deepEqual(await members(), ['bob']);
  using _down = server.refusing();
  await server.clock.advance(2_000);
  assert.deepEqual(await members(), ['bob']);
  await server.clock.advance(2_000);
  assert.deepEqual(await members(), []);
});

test('operations that the rules deny are rejected with typed errors', async () => {
  await using server = await new MemoryServer({
    rules: {
      maySubscribe: (_, topic) => !topic.startsWith('secret.'),
      mayPublish: ({ userId }, topic) => topic.startsWith(`user.${userId}.`),
    },
  }).start();
  const ps = server.client({ token: server.token('alice') });
  await assert.rejects(ps.subscribe('secret.a'), PermissionDenied);
  const sub = await ps.subscribe(['secret.a', 'open.a', 'user.**']);
  assert.deepEqual(
    sub.denied.map(({ topic }) => topic),
    ['secret.a'],
  );
  await assert.rejects(ps.publish('user.bob.a', { data: 1 }), PermissionDenied);
  await ps.publish('user.alice.a', { data: 1 });
  await assert.rejects(async () => {
    for await (const _ of ps.history('secret.a'));
  }, PermissionDenied);
  await assert.rejects(ps.topics(), PermissionDenied);
  await assert.rejects(server.publish('user.*', { data: 1 }), InvalidTopic);
});

test('a service lists topics only on a server without rules', async () => {
  const rules = { mayPublish: () => true };
  for (const [options, kind, isAllowed] of [
    [{}, 'service', true],
    [{}, 'user', false],
    [{ rules }, 'service', false],
    [{ rules }, 'admin', true],
  ] as const) {
    await using server = await new MemoryServer(options).start();
    const listing = server.client({ token: server.token('ada', { kind }) }).topics();
    if (isAllowed) assert.deepEqual(await listing, []);
    else
      await assert.rejects(listing, { name: 'PermissionDenied', message: /only an administrator/ });
  }
});

test('invalid messages are rejected with typed errors', async () => {
  await using server = await new MemoryServer({ maxPayload: 100 }).start();
  for (const [message, code] of [
    [{ data: Number.NaN }, 'invalid_payload'],
    [{ data: () => {} }, 'invalid_payload'],
    [{ data: 'x'.repeat(200) }, 'payload_too_large'],
    [{ data: undefined }, 'invalid_frame'],
    [{ data: 1, ttl: -1 }, 'invalid_frame'],
    [undefined, 'invalid_frame'],
  ] as const) {
    await assert.rejects(server.publish('a.b', message as never), { code });
  }
  const data = { words: ['one'] };
  await server.publish('a.b', { data });
  data.words.push('two');
  const [first] = await take(server.client().history('a.b'), 1);
  assert.deepEqual(first?.data, { words: ['one'] });
});

test('the history has every message of several senders with the same ids', async () => {
  await using server = await new MemoryServer().start();
  for (const user of ['ann', 'bob']) {
    const ps = server.client({ token: server.token(user) });
    for (const id of ['1', '2', '3', '4']) await ps.publish('a.b', { id, data: user + id });
  }
  const all = ['ann1', 'ann2', 'ann3', 'ann4', 'bob1', 'bob2', 'bob3', 'bob4'];
  for (const historyPage of [2, 3, 4]) {
    const ps = server.client({ historyPage });
    const read: unknown[] = [];
    for await (const { data } of ps.history('a.b')) read.push(data);
    assert.deepEqual(read, all);
  }
});

test('history, topics and batches work', async () => {
  await using server = await new MemoryServer({ historyMaxMessages: 3 }).start();
  const ps = server.client({ historyPage: 2 });
  const results = await ps.publishMany([1, 2, 3, 4].map((data) => ['list.1', { data }] as const));
  assert.ok(results.every((result) => !(result instanceof PubSubError)));
  const kept: unknown[] = [];
  for await (const { data } of ps.history('list.1')) kept.push(data);
  assert.deepEqual(kept, [2, 3, 4]);
  const [topic] = await ps.topics('list');
  assert.deepEqual([topic?.topic, topic?.messages], ['list.1', 3]);
  await server.clock.advance(3_601_000);
  for await (const message of ps.history('list.1')) assert.fail(String(message.data));
});

test('publishes above the rate wait, or are rejected', async () => {
  await using server = await new MemoryServer({ publishRateUser: 10 }).start();
  const ps = server.client({ token: server.token('alice') });
  const all = Promise.all(Array.from({ length: 30 }, (_, data) => ps.publish('a.b', { data })));
  const began = server.clock.now();
  let isDone = false;
  void all.then(() => {
    isDone = true;
  });
  await server.clock.advanceUntil(() => isDone);
  assert.ok(server.clock.now() - began >= 1_900);
  const other = server.client({ token: server.token('bob'), restAttempts: 1 });
  const many = Array.from({ length: 11 }, (_, data) =>
    other.publish('a.b', { data }, { via: 'rest' }),
  );
  const refused = (await Promise.allSettled(many)).flatMap((one) =>
    one.status === 'rejected' ? [one.reason as unknown] : [],
  );
  assert.equal(refused.length, 1);
  assert.ok(refused[0] instanceof RateLimited);
});

test('a machine that was suspended reconnects at once', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  await ps.connect();
  await server.clock.machineSleeps(3_600_000);
  await server.clock.advance(10_000);
  assert.equal(ps.state, 'connected');
  assert.deepEqual(server.attempts.slice(), ['websocket', 'websocket']);
});

test('the server records what clients sent, without their tokens', async () => {
  await using server = await new MemoryServer().start();
  await server.client({ token: server.token('alice') }).publish('a.b', { data: 1 });
  assert.deepEqual(
    server.received.map(({ type }) => type),
    ['auth', 'publish'],
  );
  assert.equal(server.received[0]?.['token'], '...');
  assert.deepEqual(server.attempts, ['websocket']);
  assert.equal(server.connections, 1);
  assert.equal(server.stats.published, 1);
});

test('the same seed gives the same run', async () => {
  const run = async (seed: number): Promise<unknown> => {
    await using server = await new MemoryServer({ seed }).start();
    const ps = server.client();
    const sub = await ps.subscribe('a.b');
    const { id } = await server.publish('a.b', { data: 1 });
    using _down = server.refusing();
    await server.clock.advance(60_000);
    await sub.unsubscribe();
    return [id, server.attempts.length, server.clock.now()];
  };
  assert.deepEqual(await run(7), await run(7));
  assert.notDeepEqual(await run(7), await run(8));
});

test('nothing is left when the server has ended', async () => {
  const server = await new MemoryServer().start();
  const ps = server.client();
  await ps.subscribe('a.b', { onMessage: () => {} });
  const cut = server.client();
  await cut.subscribe('a.b', { onMessage: () => {} });
  server.cut();
  await server.stop();
  await server.stop();
  await server.clock.settle();
  assert.equal(ps.state, 'closed');
  assert.equal(server.connections, 0);
  assert.equal(server.clock.pending, 0);
  for (const use of [() => server.client(), () => server.token()]) {
    assert.throws(use, UsageError);
  }
  await assert.rejects(server.publish('a.b', { data: 1 }), UsageError);
});

for (const [name, access] of [
  ['token', (token: string) => ({ token })],
  ['getToken', (token: string) => ({ getToken: () => token })],
] as const) {
  test(`a program can create its own client with \`server.options\` and \`${name}\``, async () => {
    await using server = await new MemoryServer({ clock: new SystemClock() }).start();
    await using ps = new PubSub({ ...server.options, ...access(server.token('bob')) });
    const sub = await ps.subscribe('a.b');
    await server.publish('a.b', { data: 'hi' });
    assert.deepEqual((await take(sub.events(), 1)).map(tell), ['hi']);
    assert.equal(ps.url, server.url);
  });
}

test('an unknown setting, and one out of range, are refused', () => {
  for (const given of [{ historyMax: 1 }, { historyMaxMessages: -1 }, { seed: 0.5 }]) {
    assert.throws(() => new MemoryServer(given as object), InvalidOption);
  }
});

test('a log that restarts in the same millisecond has other positions', async () => {
  await using server = await new MemoryServer().start();
  const first = await server.publish('a.b', { data: 1 });
  server.forgetHistory('a.b', { positions: true });
  const second = await server.publish('a.b', { data: 2 });
  assert.ok(Number(second.seq) > Number(first.seq) + 1);
});

for (const pattern of ['a.b', 'a.*']) {
  test(`a position of a clock that was ahead is a gap of ${pattern}`, async () => {
    await using server = await new MemoryServer().start();
    const after = { 'a.b': Number.MAX_SAFE_INTEGER };
    const sub = await server.client().subscribe(pattern, { after });
    await server.publish('a.b', { data: 1 });
    assert.deepEqual((await take(sub.events(), 2)).map(tell), ['log_reset undefined', 1]);
  });
}

test('a position of a topic that is not subscribed is ignored', async () => {
  await using server = await new MemoryServer().start();
  const after = { 'b.c': Number.MAX_SAFE_INTEGER };
  const sub = await server.client().subscribe('a.*', { after });
  await server.publish('a.b', { data: 1 });
  assert.deepEqual((await take(sub.events(), 1)).map(tell), [1]);
});

test('the replay of a pattern is in the order of timestamps', async () => {
  await using server = await new MemoryServer().start();
  for (const [topic, data] of [
    ['a.1', 1],
    ['a.2', 2],
    ['a.1', 3],
  ] as const) {
    await server.publish(topic, { data });
    await server.clock.advance(10);
  }
  const sub = await server.client().subscribe('a.*', { history: 10 });
  assert.deepEqual((await take(sub.events(), 3)).map(tell), [1, 2, 3]);
});

test('a broken connection loses frames in flight, and one that the server closes does not', async () => {
  await using server = await new MemoryServer().start();
  const ps = server.client();
  const sub = await ps.subscribe('a.b');
  for (const [code, data] of [
    [undefined, 'lost'],
    [1001, 'kept'],
  ] as const) {
    void server.publish('a.b', { data, ttl: 0 });
    server.cut(code);
    await server.clock.advanceUntil(() => ps.state === 'connected');
  }
  assert.deepEqual((await take(sub.events(), 1)).map(tell), ['kept']);
});

test('an administrator may do what the rules deny', async () => {
  const never = (): boolean => false;
  const rules = { maySubscribe: never, mayPublish: never };
  await using server = await new MemoryServer({ rules }).start();
  const ps = server.client({ token: server.token('root', { kind: 'admin' }) });
  const sub = await ps.subscribe('a.b');
  await ps.publish('a.b', { data: 1 });
  assert.deepEqual((await take(sub.events(), 1)).map(tell), [1]);
});

test('an idle socket receives pings, and an aborted stream is removed', async () => {
  await using server = await new MemoryServer().start();
  const { WebSocket: Socket, fetch: ask } = server.options;
  const token = server.token();
  assert.ok(Socket && ask);
  const socket = new Socket(server.url);
  let pings = 0;
  socket.addEventListener('ping', () => {
    pings += 1;
  });
  await server.clock.settle();
  socket.send(JSON.stringify({ type: 'auth', token }));
  await server.clock.advance(100_000);
  assert.equal(pings, 6);
  assert.equal(socket.readyState, 1);
  socket.close();
  const abort = new AbortController();
  const headers = { Authorization: `Bearer ${token}` };
  const address = 'http://memory.localhost/v1/subscribe?topics=a.b';
  await ask(address, { headers, signal: abort.signal });
  assert.equal(server.connections, 1);
  abort.abort();
  assert.equal(server.connections, 0);
});

for (const wait of [true, false]) {
  const when = wait ? 'a client that is connected' : 'a client that is not connected yet';
  test(`a batch far beyond the rate goes at the rate: ${when}`, async () => {
    await using server = await new MemoryServer({ publishRateService: 100 }).start();
    const ps = server.client({ operationTimeout: 60_000 });
    if (wait) await ps.connect();
    const began = server.clock.now();
    const batch = Array.from({ length: 500 }, (_, n) => ['chat.1', { data: n }] as const);
    let results: unknown[] | undefined;
    const publishing = ps.publishMany(batch).then((all) => {
      results = all;
    });
    await server.clock.advanceUntil(() => results !== undefined);
    await publishing;
    assert.ok(results?.every((result) => !(result instanceof Error)));
    assert.ok(server.clock.now() - began < 7_000);
    const kept = await take(ps.history('chat.1'), 100);
    assert.deepEqual(
      kept.map((message) => message.data),
      batch.slice(400).map(([, { data }]) => data),
    );
  });
}
