import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import {
  AuthRefused,
  ClosedError,
  type Gap,
  InvalidOption,
  InvalidTopic,
  type Message,
  PermissionDenied,
  type PresenceMember,
  PubSub,
  PubSubError,
  type StateChange,
  UsageError,
} from '../../../js/src/index.js';
import { bounded, deferred, Server, take } from './server.js';

let server: Server;
let token: string;
let service: string;

before(async () => {
  server = await Server.start('--publish-rate-service', '10000', '--history-max-messages', '5000');
  token = server.token('--user', 'alice', '--org', 'acme');
  service = server.token('--user', 'worker', '--org', 'acme', '--service');
});
after(() => server.stop());

test('creating a client does no I/O', async () => {
  const ps = new PubSub({ url: 'wss://nowhere.invalid/ws', token: 'x' });
  assert.equal(ps.state, 'initialized');
  await ps.close();
  assert.equal(ps.state, 'closed');
});

test('a published message is delivered with its payload', async () => {
  const ps = server.client({ token: service });
  const sub = await ps.subscribe('demo.one');
  const done = await ps.publish('demo.one', { type: 'token', data: { content: 'Hi' } });
  const [message] = await take(sub, 1);
  assert.equal(message?.id, done.id);
  assert.equal(message?.seq, done.seq);
  assert.equal(message?.type, 'token');
  assert.deepEqual(message?.data, { content: 'Hi' });
  assert.equal(done.duplicate, false);
  assert.deepEqual(sub.positions, { 'demo.one': done.seq });
  assert.deepEqual(sub.stats.handled, 1);
  await ps.close();
});

test('the same id is published once', async () => {
  const ps = server.client({ token: service });
  const first = await ps.publish('demo.twice', { data: 1 }, { id: 'msg_same' });
  const again = await ps.publish('demo.twice', { data: 1 }, { id: 'msg_same' });
  assert.deepEqual([first.duplicate, again.duplicate], [false, true]);
  assert.equal(again.seq, first.seq);
  await ps.close();
});

test('many messages get one result each, in order', async () => {
  const ps = server.client({ token: service });
  const sub = await ps.subscribe('demo.many');
  const results = await ps.publishMany(
    Array.from({ length: 50 }, (_, n) => ['demo.many', { data: n }] as const),
  );
  const messages = await take(sub, 50);
  assert.deepEqual(
    messages.map(({ data }) => data),
    Array.from({ length: 50 }, (_, n) => n),
  );
  assert.deepEqual(
    results.map((one) => (one instanceof PubSubError ? one.code : one.id)),
    messages.map(({ id }) => id),
  );
  await ps.close();
});

test('handlers run in order, and the `error` listener receives what they throw', async () => {
  const ps = server.client({ token: service });
  const seen: unknown[] = [];
  const all = deferred<void>();
  const thrown = deferred<Error>();
  ps.on('error', thrown.resolve);
  await ps.subscribe('demo.handlers', {
    onMessage: async ({ data }) => {
      await null;
      seen.push(data);
      if (data === 2) all.resolve();
      if (data === 0) throw new RangeError('mine');
    },
  });
  for (const data of [0, 1, 2]) await ps.publish('demo.handlers', { data });
  await bounded(all.promise, 'the last message');
  assert.deepEqual(seen, [0, 1, 2]);
  assert.equal((await bounded(thrown.promise, 'the error')).message, 'mine');
  await ps.close();
});

test('breaking out of an iteration unsubscribes, and closing ends an iteration', async () => {
  const ps = server.client({ token: service });
  const left = await ps.subscribe('demo.left');
  await ps.publish('demo.left', { data: 1 });
  for await (const _ of left) break;
  assert.equal(left.active, false);
  const ended = await ps.subscribe('demo.left');
  const rest = (async () => {
    const got: Message[] = [];
    for await (const message of ended) got.push(message);
    return got;
  })();
  await ps.close();
  assert.deepEqual(await bounded(rest, 'the end'), []);
  await assert.rejects(ps.publish('demo.left', { data: 1 }), ClosedError);
});

test('a signal ends a subscription and gives up a call', async () => {
  const ps = server.client({ token: service });
  const abort = new AbortController();
  const sub = await ps.subscribe('demo.signal', { signal: abort.signal });
  const ended = take(sub, 1);
  abort.abort();
  assert.deepEqual(await ended, []);
  const reason = new Error('enough');
  await assert.rejects(
    ps.publish('demo.signal', { data: 1 }, { signal: AbortSignal.abort(reason) }),
    reason,
  );
  await ps.close();
});

test('since and after replay what was published before', async () => {
  const ps = server.client({ token: service });
  const start = Date.now() - 1_000;
  const first = await ps.publish('demo.replay', { data: 'a' });
  await ps.publish('demo.replay', { data: 'b' });
  const since = await ps.subscribe('demo.replay', { since: start });
  assert.deepEqual(
    (await take(since, 2)).map(({ data }) => data),
    ['a', 'b'],
  );
  const after = await ps.subscribe('demo.replay', {
    after: { 'demo.replay': first.seq as number },
  });
  assert.deepEqual(
    (await take(after, 1)).map(({ data }) => data),
    ['b'],
  );
  const newest = await ps.subscribe('demo.replay', { history: 1 });
  assert.deepEqual(
    (await take(newest, 1)).map(({ data }) => data),
    ['b'],
  );
  await ps.close();
});

test('presence lists all members, and reports every change', async () => {
  const [alice, bob] = ['alice', 'bob'].map((user) =>
    server.client({ token: server.token('--user', user, '--org', 'acme') }),
  ) as [PubSub, PubSub];
  const lists: string[][] = [];
  const both = deferred<void>();
  const typing = deferred<PresenceMember>();
  const cleared = deferred<PresenceMember>();
  const gone = deferred<void>();
  await alice.subscribe('org.acme.room', {
    onPresence: (members, change) => {
      lists.push(members.map(({ user_id }) => user_id));
      if (members.length === 2) both.resolve();
      if (change.member?.status === 'typing') typing.resolve(change.member);
      if (change.member?.metadata?.['place'] === 4) cleared.resolve(change.member);
      if (change.change === 'leave') gone.resolve();
    },
  });
  await bob.subscribe('org.acme.room');
  await bounded(both.promise, 'the join');
  await bob.publish('org.acme.room', { type: 'presence.update', data: { status: 'typing' } });
  assert.equal((await bounded(typing.promise, 'the update')).user_id, 'bob');
  await bob.updatePresence('org.acme.room', { status: null, place: 4 });
  assert.equal((await bounded(cleared.promise, 'what was deleted')).status, undefined);
  await bob.close();
  await bounded(gone.promise, 'the leave');
  assert.deepEqual(lists.at(-1), ['alice']);
  await alice.close();
});

test('an operation that the rules forbid is rejected, and the error names the topic', async () => {
  const ps = server.client({ token });
  await assert.rejects(ps.subscribe('org.other.secrets'), PermissionDenied);
  await assert.rejects(ps.publish('org.other.secrets', { data: 1 }), PermissionDenied);
  await ps.close();
});

test('wrong arguments are refused before anything is sent', async () => {
  assert.throws(() => new PubSub({ url: server.ws }), { code: 'invalid_option', field: 'token' });
  assert.throws(() => new PubSub({ url: 'ws://example.com/ws', token: 'x' }), {
    code: 'insecure_url',
  });
  assert.throws(() => new PubSub({ url: server.ws, token: 'x', retries: 3 } as object), {
    field: 'retries',
  });
  const ps = server.client({ token });
  await assert.rejects(ps.subscribe('a..b'), InvalidTopic);
  await assert.rejects(ps.publish('a.*', { data: 1 }), InvalidTopic);
  await assert.rejects(ps.publish('a', { data: 1n }), { code: 'invalid_payload' });
  await assert.rejects(ps.publish('a', { data: 1, kind: 'x' } as never), InvalidOption);
  await assert.rejects(ps.publish('a', { data: 'x'.repeat(300_000) }), {
    code: 'payload_too_large',
  });
  assert.equal(ps.state, 'initialized');
  const sub = await ps.subscribe('org.acme.mine', { onMessage: () => {} });
  assert.throws(() => sub[Symbol.asyncIterator](), UsageError);
  await ps.close();
});

test('the error that ends subscriptions with handlers is reported once', async () => {
  const ps = server.client({ token: server.token('--user', 'leaver') });
  const errors: Error[] = [];
  const reported = deferred<void>();
  ps.on('error', (error) => {
    errors.push(error);
    reported.resolve();
  });
  const onMessage = (): void => {};
  for (const topic of ['demo.one', 'demo.two']) await ps.subscribe(topic, { onMessage });
  const iterated = await ps.subscribe('demo.three');
  await server.fault({ fault: 'expire', user: 'leaver' });
  await assert.rejects(take(iterated, 1), { code: 'token_expired' });
  await bounded(reported.promise, 'the report').finally(() => ps.close());
  assert.deepEqual(
    errors.map((error) => (error as PubSubError).code),
    ['token_expired'],
  );
});

for (const iterated of [false, true]) {
  const result = iterated ? 'thrown by its iteration' : 'reported';
  test(`the error that ends a subscription with only \`onPresence\` is ${result}`, async () => {
    const ps = server.client({ token: server.token('--user', 'leaver') });
    const errors: string[] = [];
    const reported = deferred<void>();
    ps.on('error', (error) => {
      errors.push((error as PubSubError).code);
      reported.resolve();
    });
    const sub = await ps.subscribe('demo.one', { onPresence: () => {} });
    const read = iterated && assert.rejects(take(sub, 1), { code: 'token_expired' });
    await server.fault({ fault: 'expire', user: 'leaver' });
    await (read || bounded(reported.promise, 'the report'));
    await ps.close();
    assert.deepEqual(errors, iterated ? [] : ['token_expired']);
  });
}

test('a refused token fails the client, and every call reports it', async () => {
  const ps = server.client({ token: 'nonsense' });
  await assert.rejects(ps.connect(), { code: 'token_invalid' });
  assert.equal(ps.state, 'failed');
  await assert.rejects(ps.subscribe('demo.one'), PubSubError);
  const refusing = server.client({
    getToken: () => {
      throw new AuthRefused('signed out');
    },
  });
  await assert.rejects(refusing.connect(), { code: 'auth_refused' });
});

test('`lastError` is the failure of the last connection or attempt, and closing is not a failure', async () => {
  const ps = server.client({ token });
  await ps.connect();
  assert.equal(ps.lastFailure, undefined);
  await ps.close();
  assert.equal(ps.lastFailure, undefined);
  const refused = server.client({ token: 'nonsense' });
  await assert.rejects(refused.connect(), { code: 'token_invalid' });
  assert.equal(refused.lastFailure?.to, 'failed');
  assert.ok(refused.lastFailure?.reason);
});

test('changes of state are reported in order, and end with the client', async () => {
  const ps = server.client({ token });
  const described: StateChange[] = [];
  ps.on('state', (change) => described.push(change));
  const read = (async () => {
    const seen: string[] = [];
    for await (const { to } of ps.states()) seen.push(to);
    return seen;
  })();
  await ps.connect();
  await ps.close();
  const seen = await bounded(read, 'the end of the states');
  assert.deepEqual(seen, ['connecting', 'authenticating', 'connected', 'closed']);
  assert.deepEqual(
    described.map(({ to }) => to),
    seen,
  );
});

test('a slow reader receives a gap in its place', async () => {
  const ps = server.client({ token: service });
  const described = deferred<Gap>();
  ps.on('gap', described.resolve);
  const sub = await ps.subscribe('demo.slow', { queue: { messages: 10 } });
  const last = deferred<void>();
  await ps.subscribe('demo.slow', {
    onMessage: ({ data }) => {
      if (data === 29) last.resolve();
    },
  });
  for (let n = 0; n < 30; n += 1) await ps.publish('demo.slow', { data: n });
  await bounded(last.promise, 'the last message');
  const events = await take(sub.events(), 11);
  const [first, second] = events;
  assert.equal(first?.kind === 'gap' && first.gap.missed, 20);
  assert.equal(first?.kind === 'gap' && first.gap.reason, 'slow_consumer');
  assert.equal(second?.kind === 'message' && second.message.data, 20);
  assert.equal((await bounded(described.promise, 'the gap')).missed, 20);
  const { received, handled, dropped, queued } = sub.stats;
  assert.deepEqual(
    { received, handled, dropped, queued },
    {
      received: 30,
      handled: 10,
      dropped: 20,
      queued: 0,
    },
  );
  await ps.close();
});

test('a connection that is cut ten times loses nothing and repeats nothing', async () => {
  const publisher = server.client({ token: service });
  const claims = ['--user', 'reader', '--org', 'acme', '--service'];
  // Short connections would make it fall back to an event stream, which has its own test.
  const reader = server.client({ token: server.token(...claims), transport: 'websocket' });
  const gaps: Gap[] = [];
  reader.on('gap', (gap) => gaps.push(gap));
  const sub = await reader.subscribe('demo.cuts');
  const states = reader.states();
  const seen: string[] = [];
  const got = take(sub, 1_000);
  for (let cut = 0; cut < 10; cut += 1) {
    const sent = Array.from({ length: 100 }, (_, n) =>
      publisher.publish('demo.cuts', { data: 100 * cut + n }),
    );
    await sent[50];
    await server.fault({ fault: 'drop', user: 'reader' });
    while (seen.filter((to) => to === 'connected').length <= cut) {
      const { value } = await bounded(states.next(), 'the next connection');
      seen.push(value?.to ?? 'ended');
    }
    await bounded(Promise.all(sent), 'every answer');
  }
  assert.deepEqual(
    (await got).map(({ data }) => data),
    Array.from({ length: 1_000 }, (_, n) => n),
  );
  assert.equal(seen.filter((to) => to === 'reconnecting').length, 10);
  assert.deepEqual(gaps, []);
  assert.deepEqual([sub.stats.received, sub.stats.dropped], [1_000, 0]);
  await Promise.all([reader.close(), publisher.close()]);
});

test('publishes that a cut interrupts are published once', async () => {
  const writer = server.client({
    token: server.token('--user', 'writer', '--org', 'acme', '--service'),
    transport: 'websocket',
  });
  const watcher = server.client({ token: service });
  const sub = await watcher.subscribe('demo.writes');
  await writer.connect();
  const results: Promise<unknown>[] = [];
  for (let n = 0; n < 200; n += 1) {
    results.push(writer.publish('demo.writes', { data: n }));
    if (n % 50 === 25) await server.fault({ fault: 'drop', user: 'writer' });
  }
  await bounded(Promise.all(results), 'every answer');
  const got = await take(sub, 200);
  assert.deepEqual(
    got.map(({ data }) => data),
    Array.from({ length: 200 }, (_, n) => n),
  );
  await Promise.all([writer.close(), watcher.close()]);
});

test('short tokens are renewed while messages flow', async () => {
  const reasons: string[] = [];
  const renewed = deferred<void>();
  const reader = server.client({
    getToken: async ({ reason }) => {
      reasons.push(reason);
      if (reasons.length === 3) renewed.resolve();
      return server.token('--user', 'carol', '--org', 'acme', '--service', '--ttl', '4');
    },
    refreshMargin: 3_000,
  });
  const publisher = server.client({ token: service });
  const sub = await reader.subscribe('demo.rotation');
  await publisher.publish('demo.rotation', { data: 'before' });
  await bounded(renewed.promise, 'the second renewal');
  await publisher.publish('demo.rotation', { data: 'after' });
  assert.deepEqual(
    (await take(sub, 2)).map(({ data }) => data),
    ['before', 'after'],
  );
  assert.equal(reasons[0], 'connect');
  await Promise.all([reader.close(), publisher.close()]);
});
