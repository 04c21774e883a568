/** Timeouts and ends of publishes, requests and connections. */

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';

import {
  type Gap,
  type Message,
  OperationTimeout,
  type PubSub,
  type PubSubError,
} from '../../../js/src/index.js';
import { deferred, take } from './server.js';
import { CURRENT, turns, virtualClient } from './virtual.js';

test('a subscription with a handler stays in force when the answer is late', async () => {
  const { ps, peer, clock } = virtualClient();
  peer.silent.add('subscribe');
  const seen: unknown[] = [];
  const asked = ps.subscribe('a.b', { onMessage: ({ data }) => seen.push(data), timeout: 300 });
  const late = assert.rejects(asked, (error: OperationTimeout) => {
    assert.ok(error instanceof OperationTimeout);
    assert.match(error.message, /within 300 ms; it stays active and may still be answered/);
    return error.outcomeUnknown && error.topic === 'a.b';
  });
  await clock.advance(301);
  await late;
  const { socket } = peer;
  assert.equal(socket.frames('unsubscribe').length, 0);
  peer.silent.clear();
  for (const answer of peer.answer(socket.frames('subscribe')[0] ?? {})) socket.receive(answer);
  socket.receive(peer.message('a.b', 1));
  await turns();
  assert.deepEqual(seen, [1]);
  await ps.close();
});

test('a subscription without a handler ends when the answer is late', async () => {
  const { ps, peer, clock } = virtualClient();
  peer.silent.add('subscribe');
  const late = assert.rejects(ps.subscribe('a.b', { timeout: 300 }), (error: OperationTimeout) => {
    return error instanceof OperationTimeout && !error.outcomeUnknown;
  });
  await clock.advance(301);
  await late;
  assert.equal(peer.socket.frames('unsubscribe').length, 1);
  await ps.close();
});

test('a token callback that does not return is the reason', async () => {
  const { ps, clock } = virtualClient({ getToken: () => new Promise(() => {}) });
  const late = assert.rejects(ps.connect({ timeout: 100 }), {
    code: 'connection_failed',
    message: 'Not connected within 100 ms: `getToken` has not returned.',
  });
  await clock.advance(101);
  await late;
  await ps.close({ timeout: 0 });
});

test('a failed connection is reported with its reason', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  peer.silent.add('auth');
  const late = assert.rejects(ps.connect({ timeout: 100 }), {
    code: 'connection_failed',
    message: 'Not connected within 100 ms: the state is authenticating.',
  });
  await clock.advance(101);
  await late;
  peer.socket.drop(1011, 'Out of order.');
  const again = assert.rejects(ps.connect({ timeout: 100 }), {
    message: 'Not connected within 100 ms: Out of order (1011).',
  });
  await clock.advance(101);
  await again;
  await ps.close();
});

test('a publish that is not answered is unknown, and one that was not sent is not', async () => {
  const { ps, peer, clock } = virtualClient();
  await ps.connect();
  peer.silent.add('publish');
  const sent = assert.rejects(ps.publish('a.b', { data: 1 }, { timeout: 50 }), {
    code: 'timeout',
    outcomeUnknown: true,
  });
  await clock.advance(51);
  await sent;
  peer.silent.add('auth');
  peer.socket.drop();
  const unsent = assert.rejects(ps.publish('a.b', { data: 1 }, { timeout: 50 }), {
    code: 'timeout',
    outcomeUnknown: false,
  });
  await clock.advance(51);
  await unsent;
  await ps.close({ timeout: 0 });
});

test('with the policy `block`, publishes wait for room in order, until their timeout', async () => {
  const { ps, peer, clock } = virtualClient({ sendQueue: { messages: 1, policy: 'block' } });
  await ps.connect();
  peer.silent.add('publish');
  const order: number[] = [];
  const publish = (data: number, timeout: number): Promise<unknown> =>
    ps.publish('a.b', { data }, { timeout }).then(
      () => order.push(data),
      (error: unknown) => error,
    );
  const abort = new AbortController();
  const all = [1, 2, 3, 4].map((data) => publish(data, 1_000));
  const late = publish(5, 100);
  const reason = new Error('enough');
  const given = ps.publish('a.b', { data: 6 }, { signal: abort.signal });
  const gone = assert.rejects(given, reason);
  await clock.advance(101);
  assert.ok((await late) instanceof OperationTimeout);
  abort.abort(reason);
  await gone;
  peer.silent.clear();
  const { socket } = peer;
  for (const frame of socket.frames('publish')) {
    for (const answer of peer.answer(frame)) socket.receive(answer);
  }
  await Promise.all(all);
  assert.deepEqual(order, [1, 2, 3, 4]);
  await ps.close();
});

for (const how of ['time out together', 'are cancelled together', 'are cancelled in one turn']) {
  test(`publishes that ${how} do not take the place of each other`, async () => {
    const { ps, peer, clock } = virtualClient({ sendQueue: { messages: 1, policy: 'block' } });
    await ps.connect();
    peer.silent.add('publish');
    const shared = new AbortController();
    const stops: AbortController[] = [];
    const all = [1, 2, 3].map((data) => {
      const stop = how === 'are cancelled together' ? shared : new AbortController();
      stops.push(stop);
      const options = how === 'time out together' ? { timeout: 100 } : { signal: stop.signal };
      return assert.rejects(ps.publish('a.b', { data }, options));
    });
    await turns();
    if (how === 'time out together') await clock.advance(101);
    else for (const stop of stops) stop.abort();
    await Promise.all(all);
    assert.equal(peer.socket.frames('publish').length, 1);
    await ps.close({ timeout: 0 });
  });
}

for (const policy of ['error', 'drop_oldest'] as const) {
  test(`a publish takes the place of one that was cancelled just before (policy ${policy})`, async () => {
    const { ps, peer } = virtualClient({ sendQueue: { messages: 2, policy } });
    await ps.connect();
    peer.silent.add('publish');
    const publish = (data: number, signal?: AbortSignal): Promise<unknown> =>
      ps.publish('a.b', { data }, { signal });
    const stop = new AbortController();
    const kept = [1, 2, 3].map((data) => publish(data));
    const cancelled = assert.rejects(publish(4, stop.signal), { name: 'AbortError' });
    stop.abort();
    kept.push(publish(5));
    await cancelled;
    peer.silent.clear();
    const { socket } = peer;
    for (const frame of socket.frames('publish')) {
      for (const answer of peer.answer(frame)) socket.receive(answer);
    }
    await Promise.all(kept);
    const sent = socket.frames('publish') as { message: { data: number } }[];
    assert.deepEqual(
      sent.map(({ message }) => message.data),
      [1, 2, 3, 5],
    );
    await ps.close();
  });
}

test('a publish takes its turn when it is within the bound of the queue', async () => {
  const { ps, peer, clock } = virtualClient({ sendQueue: { messages: 2, policy: 'block' } });
  peer.hello = () => ({ ...CURRENT, limits: { publish_rate: 1 } });
  const all = [1, 2, 3, 4, 5].map((data) =>
    ps.publish('a.b', { data }, { background: data < 5, timeout: 60_000 }),
  );
  await clock.advance(20_000);
  await Promise.all(all);
  const sent = peer.socket.frames('publish').map(({ message }) => (message as Message).data);
  assert.deepEqual(sent, [1, 2, 3, 5, 4]);
  await ps.close();
});

test('closing sends the publishes that wait for room', async () => {
  const { ps, peer } = virtualClient({ sendQueue: { messages: 1, policy: 'block' } });
  await ps.connect();
  const all = [1, 2, 3].map((data) => ps.publish('a.b', { data }));
  await Promise.all([...all, ps.close()]);
  const sent = peer.socket.frames('publish').map(({ message }) => (message as Message).data);
  assert.deepEqual(sent, [1, 2, 3]);
});

/** The user of these clients. */
const ALICE = { type: 'user', id: 'alice' };

test('publishes that wait for room do not make the client forget its own messages', async () => {
  const sendQueue = { messages: 1, policy: 'block' } as const;
  const { ps, peer } = virtualClient({ echo: false, sendQueue });
  const sub = await ps.subscribe('a.b');
  peer.silent.add('publish');
  const many = Array.from({ length: 1_000 }, () => ['a.b', { data: 1 }] as const);
  const all = [
    ps.publish('a.b', { data: 1 }).catch(() => {}),
    ...Array.from({ length: 11 }, () => ps.publishMany(many).catch(() => {})),
  ];
  await turns();
  const { message: own } = peer.socket.frames('publish')[0] as { readonly message: Message };
  const { message: other } = peer.message('a.b', 1) as { readonly message: Message };
  peer.socket.receive({ type: 'message', message: { ...other, id: own.id, sender: ALICE } });
  assert.equal(sub.stats.received, 0);
  await ps.close({ timeout: 0 });
  await Promise.all(all);
});

test('with echo off, a message with the id of an own one on another topic, or of another sender, arrives', async () => {
  const { ps, peer } = virtualClient({ echo: false });
  const sub = await ps.subscribe('orders.*');
  await ps.publish('orders.created', { data: 1, id: 'order-7' });
  const { message } = peer.message('orders.paid', 1) as { readonly message: Message };
  const deliver = (topic: string, user: string, more = 0) => {
    const sender = { ...ALICE, id: user };
    const seq = (message.seq ?? 0) + more;
    const copy = { ...message, topic, sender, id: 'order-7', seq };
    peer.socket.receive({ type: 'message', message: copy });
    return sub.stats.received;
  };
  assert.equal(deliver('orders.created', 'alice'), 0);
  assert.equal(deliver('orders.paid', 'alice'), 1);
  assert.equal(deliver('orders.created', 'bob', 1), 2);
  await ps.close();
});

test('publishes leave in the order of the calls, one by one or in batches', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  const big = 'x'.repeat(200_000);
  const batch = Array.from({ length: 12 }, (_, n) => ['a.b', { data: [2, n, big] }] as const);
  const all = [
    ps.publish('a.b', { data: [1] }),
    ps.publishMany(batch),
    ps.publish('a.b', { data: [3] }),
    ps.publishMany([['a.b', { data: [4] }]]),
  ];
  const results = (await Promise.all(all))[1];
  assert.equal(Array.isArray(results) && results.length, 12);
  const sent = peer.socket.frames('publish').flatMap((frame) => {
    const list = (frame['messages'] ?? [frame['message']]) as { readonly data: number[] }[];
    return list.map(({ data }) => data.slice(0, 2));
  });
  // When the first frame of a split batch is answered, the rest follows.
  const first = sent.filter(([call, n]) => call !== 2 || (n ?? 0) < 5);
  assert.deepEqual(first, [[1], [2, 0], [2, 1], [2, 2], [2, 3], [2, 4], [3], [4]]);
  assert.deepEqual(
    sent.filter(([call]) => call === 2).map(([, n]) => n),
    Array.from({ length: 12 }, (_, n) => n),
  );
  await ps.close();
});

test('the state is loaded once per gap, before the program receives the gap and continues', async () => {
  const { ps, peer } = virtualClient({ transport: 'websocket' });
  const order: unknown[] = [];
  const tell = (what: string) => (gap: Gap, positions?: object) => {
    order.push([what, gap.missed, positions]);
  };
  const received: Gap[] = [];
  ps.on('gap', (gap) => received.push(gap));
  const options = { queue: { messages: 2 }, stateLoader: tell('load'), onGap: tell('gap') };
  const sub = await ps.subscribe('a.b', options);
  for (let data = 1; data <= 4; data += 1) peer.socket.receive(peer.message('a.b', data));
  await turns();
  const [third] = await take(sub, 1);
  assert.equal(third?.data, 3);
  await turns();
  assert.deepEqual(order, [
    ['load', 2, { 'a.b': 2 }],
    ['gap', 2, undefined],
  ]);
  assert.equal(received.length, 1);
  await ps.close();
});

test('an exception of the state loader is reported, and messages continue', async () => {
  const { ps, peer } = virtualClient();
  const errors: unknown[] = [];
  ps.on('error', (error) => errors.push(error));
  const broken = new Error('no state');
  const sub = await ps.subscribe('a.b', {
    queue: { messages: 2 },
    stateLoader: async () => {
      throw broken;
    },
  });
  for (let data = 1; data <= 3; data += 1) peer.socket.receive(peer.message('a.b', data));
  await turns();
  assert.deepEqual(
    (await take(sub, 1)).map(({ data }) => data),
    [2],
  );
  assert.deepEqual(errors, [broken]);
  await ps.close();
});

/** A request that gets no answer. */
const unanswered: typeof fetch = (_, init) =>
  new Promise((_, reject) => {
    init?.signal?.addEventListener('abort', () => reject(new Error('aborted')));
  });

const reason = new Error('enough');
const operations: readonly [string, (ps: PubSub, signal: AbortSignal) => Promise<unknown>][] = [
  ['connect', (ps, signal) => ps.connect({ signal })],
  ['subscribe', (ps, signal) => ps.subscribe('a.b', { signal })],
  ['publish', (ps, signal) => ps.publish('a.b', { data: 1 }, { signal })],
  ['publishMany', (ps, signal) => ps.publishMany([['a.b', { data: 1 }]], { signal })],
  ['updatePresence', (ps, signal) => ps.updatePresence('a.b', { status: 'idle' }, { signal })],
  ['presence', (ps, signal) => ps.presence('a.b', { signal })],
  ['topics', (ps, signal) => ps.topics('a', { signal })],
  ['history', (ps, signal) => ps.history('a.b', { signal }).next()],
];
for (const [name, operate] of operations) {
  test(`a signal cancels ${name}, before it starts and while it waits`, async () => {
    const { ps, peer } = virtualClient({ fetch: unanswered });
    await assert.rejects(operate(ps, AbortSignal.abort(reason)), reason);
    peer.silent.add('auth');
    const abort = new AbortController();
    const given = assert.rejects(operate(ps, abort.signal), reason);
    await turns();
    abort.abort(reason);
    await given;
    await ps.close({ timeout: 0 });
  });
}

test('a subscription that times out without a connection contains the reason', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  peer.isDown = true;
  const late = assert.rejects(ps.subscribe('a.b', { timeout: 300 }), (error: OperationTimeout) => {
    assert.match(
      error.message,
      /State: reconnecting, no connection for 300 ms\. Last failure: localhost cannot be reached\.$/,
    );
    assert.match(error.remedy, /^Check the URL and the network, /);
    return error.code === 'timeout' && !error.outcomeUnknown;
  });
  await clock.advance(301);
  await late;
  await ps.close({ timeout: 0 });
});

const WRONG: readonly [string, string, (ps: PubSub) => Promise<unknown>][] = [
  ['a signal that is none', 'signal', (ps) => ps.publish('a.b', { data: 1 }, wrong({ signal: 5 }))],
  ['a signal of a subscription', 'signal', (ps) => ps.subscribe('a.b', wrong({ signal: 'x' }))],
  ['a signal of connect', 'signal', (ps) => ps.connect(wrong({ signal: {} }))],
  ['an unknown option', 'ttk', (ps) => ps.publish('a.b', { data: 1 }, wrong({ ttk: 5 }))],
  ['an option of another call', 'key', (ps) => ps.presence('a.b', wrong({ key: 'k' }))],
  ['a key that is no text', 'key', (ps) => ps.publish('a.b', { data: 1 }, wrong({ key: 5 }))],
  ['a ttl for several messages', 'ttl', (ps) => ps.publishMany([], wrong({ ttl: 5 }))],
  ['one id for several messages', 'id', (ps) => ps.publishMany([], wrong({ id: 'x' }))],
  ['null as options', 'options', (ps) => ps.publishMany([], wrong(null))],
  ['null as options of history', 'options', (ps) => ps.history('a.b', wrong(null)).next()],
  ['a limit of history as text', 'limit', (ps) => ps.history('a.b', wrong({ limit: '5' })).next()],
  ['half a message of history', 'limit', (ps) => ps.history('a.b', { limit: 2.5 }).next()],
  ['a negative limit of history', 'limit', (ps) => ps.history('a.b', { limit: -1 }).next()],
  ['a limit of history that is NaN', 'limit', (ps) => ps.history('a.b', { limit: NaN }).next()],
  ['a position as text', 'after', (ps) => ps.history('a.b', wrong({ after: '5' })).next()],
  ['a negative position', 'after', (ps) => ps.history('a.b', { after: -1 }).next()],
  ['a time of history that is NaN', 'since', (ps) => ps.history('a.b', { since: NaN }).next()],
  [
    'a time of history that is empty',
    'since',
    (ps) => ps.history('a.b', wrong({ since: '' })).next(),
  ],
  ['an id that is no text', 'before', (ps) => ps.history('a.b', wrong({ before: true })).next()],
  ['null as a message', 'before', (ps) => ps.history('a.b', wrong({ before: null })).next()],
  ['a message without an id', 'before', (ps) => ps.history('a.b', wrong({ before: {} })).next()],
  ['an empty id', 'before', (ps) => ps.history('a.b', { before: '' }).next()],
  ['a negative end of history', 'before', (ps) => ps.history('a.b', { before: -1 }).next()],
  ['two places in history', 'after', (ps) => ps.history('a.b', { before: 5, after: 4 }).next()],
  ['a message of another topic', 'before', (ps) => ps.history('a.c', { before: sent() }).next()],
  [
    'a message that history omits',
    'before',
    (ps) => ps.history('a.b', { before: sent({ ttl: 0 }) }).next(),
  ],
  ['options in place of a prefix', 'prefix', (ps) => ps.topics(wrong({ limit: 5 }))],
  ['a limit of topics as text', 'limit', (ps) => ps.topics('a.', wrong({ limit: '5' }))],
  ['no topics', 'limit', (ps) => ps.topics('a.', { limit: 0 })],
  ['messages that are no list', 'messages', (ps) => ps.publishMany(wrong(5))],
  ['an update that is no object', 'data', (ps) => ps.updatePresence('a.b', wrong([1]))],
];
const wrong = (value: unknown): never => value as never;
const sent = (more: Partial<Message> = {}): Message => ({
  ...{ id: 'm5', topic: 'a.b', type: 't', data: 1, timestamp: 5, seq: 5 },
  ...more,
});
for (const [what, field, call] of WRONG) {
  test(`${what} is rejected by name, before anything is sent`, async () => {
    const { ps, peer } = virtualClient();
    await assert.rejects(call(ps), (error: PubSubError) => {
      assert.match(error.code, /^invalid_(option|payload)$/);
      return error.field === field && error.remedy.length > 0;
    });
    assert.equal(peer.sockets.length, 0);
    await ps.close();
  });
}

test('an item of several messages that cannot be published is named by its number', async () => {
  const { ps, peer } = virtualClient();
  const wrongItems: readonly [string, unknown][] = [
    ['[1].topic', ['a.*', { data: 1 }]],
    ['[1].data', ['a.b', {}]],
    ['[1].data.when', ['a.b', { data: { when: new Date() } }]],
    ['[1].ttl', { topic: 'a.b', data: 1, ttl: -1 }],
    ['[1]', ['a.b']],
  ];
  for (const [field, item] of wrongItems) {
    const sent = ps.publishMany([['a.b', { data: 0 }], wrong(item)]);
    await assert.rejects(sent, (error: PubSubError) => {
      assert.match(error.message, /^Item 1: /);
      return error.field === field;
    });
  }
  assert.equal(peer.sockets.length, 0);
  await ps.close();
});

test("a string as `onGap` other than 'raise' is rejected with both forms", async () => {
  const { ps } = virtualClient();
  await assert.rejects(ps.subscribe('a.b', wrong({ onGap: 'rise' })), {
    field: 'onGap',
    remedy: "Pass a function, or 'raise'.",
  });
  await ps.close();
});

test('a signal has one listener, however many calls it is given to', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  peer.silent.add('publish');
  const abort = new AbortController();
  const { signal } = abort;
  const subs = await Promise.all(
    Array.from({ length: 20 }, (_, n) => ps.subscribe(`a.${n}`, { signal })),
  );
  const given = Array.from({ length: 20 }, (_, data) =>
    assert.rejects(ps.publish('a.b', { data }, { signal }), reason),
  );
  await turns();
  assert.equal(getEventListeners(signal, 'abort').length, 1);
  abort.abort(reason);
  await Promise.all(given);
  assert.ok(subs.every(({ active }) => !active));
  await ps.close({ timeout: 0 });
});

test('clients and subscriptions end with their block', async () => {
  const { ps, peer } = virtualClient();
  {
    await using client = ps;
    await using sub = await client.subscribe('a.b');
    assert.equal(sub.active, true);
  }
  assert.equal(peer.socket.frames('unsubscribe').length, 1);
  assert.equal(ps.state, 'closed');
});

test('publishes with different timeouts end each at its own time', async () => {
  const { ps, peer, clock } = virtualClient();
  await ps.connect();
  peer.silent.add('publish');
  const ended: string[] = [];
  const publish = async (name: string, timeout: number): Promise<void> => {
    const error = await ps.publish('a.b', { data: name }, { timeout }).catch((thrown) => thrown);
    ended.push(`${name} ${(error as PubSubError).code} after ${clock.now()}`);
  };
  const all = [publish('long', 900), publish('short', 300), publish('between', 500)];
  await clock.advance(300);
  assert.deepEqual(ended, ['short timeout after 300']);
  await clock.advance(200);
  assert.deepEqual(ended.slice(1), ['between timeout after 500']);
  await clock.advance(1_000);
  assert.deepEqual(ended.slice(2), ['long timeout after 900']);
  await Promise.all(all);
  await ps.close();
});

test('the answer of an aborted publish is ignored, and the next publish gets its own', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  peer.silent.add('publish');
  const abort = new AbortController();
  const { signal } = abort;
  const given = assert.rejects(ps.publish('a.b', { data: 1 }, { signal }), /of no use/);
  await turns();
  abort.abort(new Error('of no use'));
  await given;
  peer.silent.clear();
  for (const answer of peer.answer(peer.socket.frames('publish')[0] ?? {})) {
    peer.socket.receive(answer);
  }
  assert.ok((await ps.publish('a.b', { data: 2 }, { signal: new AbortController().signal })).id);
  await ps.close();
});

test('a signal of several publishes cancels these and no other', async () => {
  const sendQueue = { bytes: 20, policy: 'block' } as const;
  const { ps, peer, clock } = virtualClient({ sendQueue });
  peer.isDown = true;
  const abort = new AbortController();
  const publish = (bytes: number, signal?: AbortSignal): Promise<unknown> =>
    ps.publish('a.b', { data: 'x'.repeat(bytes - 2) }, { signal });
  const kept = [publish(12)];
  const cancelled = [publish(15, abort.signal), publish(5, abort.signal)];
  kept.push(publish(6));
  await turns();
  abort.abort(new Error('of no use'));
  for (const one of cancelled) await assert.rejects(one, /of no use/);
  peer.isDown = false;
  await clock.advance(5_000);
  await Promise.all(kept);
  const sent = peer.socket.frames('publish').map(({ message }) => (message as Message).data);
  assert.deepEqual(
    sent.map((data) => data.length + 2),
    [12, 6],
  );
  await ps.close();
});

test('a publish that is aborted before it is sent is never sent', async () => {
  for (let steps = 0; steps < 20; steps += 1) {
    const { ps, peer } = virtualClient();
    await ps.connect();
    const abort = new AbortController();
    const { signal } = abort;
    const given = ps.publish('a.b', { data: 1 }, { signal, background: true }).catch(() => {});
    for (let step = 0; step < steps; step += 1) await undefined;
    const before = peer.socket.frames('publish').length;
    abort.abort();
    await given;
    await turns();
    assert.equal(peer.socket.frames('publish').length, before, `after ${steps} steps`);
    await ps.close();
  }
});

test('closing ends calls that read over HTTP', async () => {
  const asked = deferred<AbortSignal>();
  const { ps, clock } = virtualClient({
    fetch: (_, init) => {
      asked.resolve(init?.signal as AbortSignal);
      return new Promise(() => {});
    },
  });
  const isClosed = { name: 'ClosedError' };
  const read = assert.rejects(ps.history('demo.slow').next(), isClosed);
  const request = await asked.promise;
  await ps.close();
  await read;
  assert.equal(request.aborted, true);
  assert.equal(clock.pending, 0);
});
