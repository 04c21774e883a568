/** Parts of a client that are loaded when they are needed. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AuthRefused, ConnectionFailed, PermissionDenied } from '../../../js/src/errors.js';
import type { PubSub } from '../../../js/src/index.js';
import { BACKGROUND, type Driver } from '../../../js/src/runtime/driver.js';
import type { Environment } from '../../../js/src/runtime/environment.js';
import { lazily, PARTS } from '../../../js/src/runtime/parts.js';
import { WebSocketTransport } from '../../../js/src/transports/websocket.js';
import { deferred } from './server.js';
import { FakePeer, turns, virtualClient } from './virtual.js';

/** Replace the loading of a part while `body` runs. */
async function loading<Name extends keyof typeof PARTS>(
  name: Name,
  load: (usual: (typeof PARTS)[Name]) => Promise<unknown>,
  body: () => Promise<void>,
): Promise<void> {
  const usual = PARTS[name];
  const change = (way: () => Promise<unknown>) => Object.assign(PARTS, { [name]: way });
  change(() => load(usual));
  try {
    await body();
  } finally {
    change(usual);
  }
}

/** Replace the loading of the operations while `body` runs. */
async function operations(
  load: (usual: (typeof BACKGROUND)['load']) => Promise<unknown>,
  body: () => Promise<void>,
): Promise<void> {
  const usual = BACKGROUND.load;
  Object.assign(BACKGROUND, { load: () => load(usual) });
  try {
    await body();
  } finally {
    BACKGROUND.load = usual;
  }
}

interface Batch {
  readonly message?: { readonly data: unknown };
  readonly messages?: readonly { readonly data: unknown }[];
}

/** The data of all published messages, in order. */
function published({ socket }: FakePeer): unknown[] {
  return socket.frames('publish').flatMap((frame) => {
    const { message, messages = [message] } = frame as unknown as Batch;
    return messages.map((one) => one?.data);
  });
}

const NETWORK = new TypeError('No network.');
const never = () => new Promise<never>(() => {});
const broken = () =>
  Promise.reject(new ConnectionFailed('A part of the client did not load.', { cause: NETWORK }));

test('the error of a part that does not load names the way to get its file', async () => {
  await assert.rejects(lazily(() => Promise.reject(NETWORK))(), {
    message: 'A part of the client did not load.',
    remedy: 'Reload the page or restart the program: a file is missing, see `cause`.',
    cause: NETWORK,
  });
});

test('messages are delivered while a part loads for another subscription', async () => {
  const { ps, peer } = virtualClient();
  const seen: unknown[] = [];
  await ps.subscribe('a.b', { onMessage: ({ data }) => seen.push(data) });
  const gate = deferred<void>();
  let loads = 0;
  await loading(
    'arguments',
    (usual) => {
      loads += 1;
      return gate.promise.then(usual);
    },
    async () => {
      const second = ps.subscribe('c.d', { types: ['token'] });
      for (const data of [1, 2, 3]) peer.socket.receive(peer.message('a.b', data));
      await turns();
      assert.deepEqual(seen, [1, 2, 3]);
      assert.equal(peer.socket.frames('subscribe').length, 1);
      gate.resolve();
      await second;
    },
  );
  assert.equal(loads, 1);
  assert.equal(peer.socket.frames('subscribe').length, 2);
  await ps.close();
});

test('the client uses the plain dialect once that part is loaded', async () => {
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
  await loading('arguments', broken, async () => {
    await assert.rejects(ps.subscribe('c.d', { types: ['token'] }), {
      code: 'connection_failed',
      message: 'A part of the client did not load.',
    });
  });
  peer.socket.receive(peer.message('a.b', 1));
  await turns();
  assert.deepEqual(seen, [1]);
  const again = await ps.subscribe('c.d', { types: ['token'] });
  again.unsubscribe();
  await ps.close();
});

test('a connection attempt whose part does not load in time fails and is retried', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  peer.hello = () => ({});
  const never = () => new Promise<never>(() => {});
  await loading('plain', never, async () => {
    ps.connect().catch(() => {});
    await clock.advance(9_999);
    assert.equal(ps.state, 'authenticating');
    await clock.advance(1);
    assert.equal(ps.state, 'reconnecting');
    assert.equal(peer.socket.closed, 1000);
  });
  await clock.advance(60_000);
  assert.equal(ps.state, 'connected');
  await ps.close();
});

for (const [what, options] of [
  ['in the background', {}],
  ['with a policy', { sendQueue: { policy: 'latest' } }],
  ['with an unlimited queue', { sendQueue: { policy: 'block' } }],
] as const) {
  test(`later publishes do not overtake a publish ${what} while its part loads`, async () => {
    const { ps, peer } = virtualClient(options);
    const gate = deferred<void>();
    await operations(
      (usual) => gate.promise.then(usual),
      async () => {
        const published = [
          ps.publish('a.b', { data: 1 }, { background: what === 'in the background' }),
          ps.publish('a.b', { data: 2 }),
          ps.publishMany([['a.b', { data: 3 }]]),
        ];
        await turns();
        assert.equal(ps.state, 'authenticating');
        gate.resolve();
        const last = gate.promise.then(() => ps.publish('a.b', { data: 4 }));
        await Promise.all([...published, last]);
      },
    );
    assert.deepEqual(published(peer), [1, 2, 3, 4]);
    await ps.close();
  });
}

test('a publish overtakes no earlier one at any moment of the loading', async () => {
  for (let steps = 0; steps < 30; steps += 1) {
    const { ps, peer } = virtualClient();
    const gate = deferred<void>();
    await operations(
      (usual) => gate.promise.then(usual),
      async () => {
        const first = ps.publish('a.b', { data: 1 });
        await turns();
        gate.resolve();
        for (let step = 0; step < steps; step += 1) await undefined;
        await Promise.all([first, ps.publish('a.b', { data: 2 })]);
      },
    );
    assert.deepEqual(published(peer), [1, 2], `after ${steps} steps`);
    await ps.close();
  }
});

test('a publish that times out while its part loads does not stop later ones', async () => {
  const { ps, peer, clock } = virtualClient();
  const gate = deferred<void>();
  await operations(
    (usual) => gate.promise.then(usual),
    async () => {
      const first = ps.publish('a.b', { data: 1 }, { timeout: 1_000 });
      const second = ps.publish('a.b', { data: 2 });
      const failed = assert.rejects(first, { code: 'connection_failed' });
      await clock.advance(1_000);
      await failed;
      gate.resolve();
      await second;
    },
  );
  assert.deepEqual(published(peer), [2]);
  await ps.close();
});

test('a publish has the values of its call, although its part loads later', async () => {
  const { ps, peer } = virtualClient();
  const message = { data: 1 };
  const first = ps.publish('a.b', message);
  message.data = 2;
  await Promise.all([first, ps.publish('a.b', message)]);
  assert.deepEqual(published(peer), [1, 2]);
  await ps.close();
});

test('the timeout of a publish includes the loading of its part', async () => {
  const { ps, peer, clock } = virtualClient();
  peer.silent.add('publish');
  const gate = deferred<void>();
  await operations(
    (usual) => gate.promise.then(usual),
    async () => {
      const late = assert.rejects(ps.publish('a.b', { data: 1 }, { timeout: 2_000 }), {
        code: 'timeout',
        outcomeUnknown: true,
      });
      await clock.advance(1_500);
      gate.resolve();
      await clock.advance(500);
      await late;
    },
  );
  await ps.close({ timeout: 0 });
});

const IN_TIME = { timeout: 2_000 };

for (const [what, part, call] of [
  ['connection', 'operations', (ps) => ps.connect(IN_TIME)],
  [
    'publish over HTTP',
    'operations',
    (ps) => ps.publish('a.b', { data: 1 }, { via: 'rest', ...IN_TIME }),
  ],
  ['subscription', 'operations', (ps) => ps.subscribe('a.b', IN_TIME)],
  ['subscription', 'arguments', (ps) => ps.subscribe('a.b', { types: ['token'], ...IN_TIME })],
  ['presence update', 'operations', (ps) => ps.updatePresence('a.b', { status: 'here' }, IN_TIME)],
] as const satisfies readonly (readonly [string, string, (ps: PubSub) => Promise<unknown>])[]) {
  test(`the timeout of a ${what} includes the loading of its ${part}`, async () => {
    const { ps, peer, clock } = virtualClient({ fetch: never });
    for (const type of ['auth', 'subscribe', 'presence.update']) {
      if (part === 'operations' || type !== 'auth') peer.silent.add(type);
    }
    const gate = deferred<void>();
    const hold = (usual: () => Promise<unknown>) => gate.promise.then(usual);
    const body = async () => {
      let text = '';
      let end = 0;
      const failed = call(ps).catch((error: Error) => {
        text = error.message;
        end = clock.now();
      });
      await clock.advance(1_500);
      gate.resolve();
      await clock.advance(2_000);
      await failed;
      assert.match(text, /within 2000 ms/);
      assert.equal(end, 2_000);
    };
    await (part === 'operations' ? operations(hold, body) : loading(part, hold, body));
    await ps.close({ timeout: 0 });
  });
}

for (const [what, call] of [
  ['presence', (ps) => ps.presence('a.b', IN_TIME)],
  ['occupancy', (ps) => ps.occupancy('a.b', IN_TIME)],
  ['topics', (ps) => ps.topics('a', IN_TIME)],
  ['history', (ps) => ps.history('a.b', IN_TIME).next()],
] as const satisfies readonly (readonly [string, (ps: PubSub) => Promise<unknown>])[]) {
  test(`the timeout of ${what} includes the loading of the HTTP API`, async () => {
    const { ps, clock } = virtualClient({ fetch: never });
    const { _driver: driver } = ps as unknown as { readonly _driver: Driver };
    const usual = driver.http;
    const gate = deferred<void>();
    Object.assign(driver, { http: () => gate.promise.then(usual) });
    let end = 0;
    const failed = assert.rejects(call(ps), { code: 'timeout', message: /within 2000 ms/ });
    const ended = failed.then(() => {
      end = clock.now();
    });
    await clock.advance(1_500);
    gate.resolve();
    await clock.advance(2_000);
    await ended;
    assert.equal(end, 2_000);
    await ps.close({ timeout: 0 });
  });
}

test('the timeout of each later page of history is its own', async () => {
  const { ps, clock } = virtualClient({
    historyPage: 1,
    fetch: () => {
      const { promise, resolve } = deferred<Response>();
      const { message } = peer.message('a.b', 1);
      const page = { messages: [message], has_more: true };
      clock.callLater(1_500, () => resolve(Response.json(page)));
      return promise;
    },
  });
  const peer = new FakePeer();
  const read = async () => {
    for await (const { seq } of ps.history('a.b', { after: 0, limit: 3, ...IN_TIME })) last = seq;
  };
  let last: number | undefined;
  const whole = read();
  await clock.advance(5_000);
  await whole;
  assert.equal(last, 3);
  await ps.close({ timeout: 0 });
});

test('a time limit that ends while a part loads is named, with its unit', async () => {
  const { ps, clock } = virtualClient();
  const { _driver: driver } = ps as unknown as { readonly _driver: Driver };
  Object.assign(driver, { http: never });
  await operations(never, async () => {
    const calls = [
      ps.publish('a.b', { data: 1 }, { timeout: 5 }),
      ps.connect({ timeout: 5 }),
      ps.topics('a', { timeout: 5 }),
    ];
    const failed = Promise.allSettled(calls);
    await clock.advance(5);
    for (const call of await failed) {
      assert.equal(call.status, 'rejected');
      assert.equal(
        String(call.status === 'rejected' && call.reason.message),
        'A part of the client did not load within 5 ms (`timeout`).',
      );
    }
  });
  await ps.close({ timeout: 0 });
});

test('operations that do not load say nothing about WebSockets', async () => {
  const dialed: string[] = [];
  const dial: Environment['dial'] = (name, all) => {
    dialed.push(name);
    return new WebSocketTransport(all, clock);
  };
  const { ps, clock } = virtualClient({}, { dial });
  await operations(broken, async () => {
    const failed = assert.rejects(ps.connect(), ConnectionFailed);
    await clock.advance(10_000);
    await failed;
  });
  assert.ok(dialed.length > 2, `${dialed.length} attempts`);
  assert.deepEqual(new Set(dialed), new Set(['websocket']));
  await ps.close();
});

test('operations that load slowly say nothing about WebSockets', async () => {
  const dialed: string[] = [];
  const dial: Environment['dial'] = (name, all) => {
    dialed.push(name);
    return new WebSocketTransport(all, clock);
  };
  const { ps, clock } = virtualClient({}, { dial });
  const gate = deferred<void>();
  await operations(
    (usual) => gate.promise.then(usual),
    async () => {
      const connected = ps.connect();
      await clock.advance(9_000);
      gate.resolve();
      await connected;
    },
  );
  assert.deepEqual(dialed, ['websocket']);
  await ps.close();
});

test('a client whose operations do not load is not connected, and tries again', async () => {
  const { ps, peer, clock } = virtualClient();
  const failures: unknown[] = [];
  ps.on('state', ({ to, reason }) => to === 'reconnecting' && failures.push(reason));
  await operations(broken, async () => {
    const failed = assert.rejects(ps.subscribe('a.b', { timeout: 100 }), {
      code: 'connection_failed',
      message: 'A part of the client did not load.',
    });
    await clock.advance(100);
    await failed;
    assert.deepEqual(failures, ['A part of the client did not load.']);
  });
  await clock.advance(60_000);
  assert.equal(ps.state, 'connected');
  await ps.publish('a.b', { data: 1 });
  assert.deepEqual(published(peer), [1]);
  await ps.close();
});

test('calls succeed if the operations load at a later attempt', async () => {
  const { ps, peer, clock } = virtualClient();
  const calls: Promise<unknown>[] = [];
  await operations(broken, async () => {
    calls.push(ps.subscribe('a.b'), ps.publish('a.b', { data: 1 }));
    await turns();
    assert.equal(ps.state, 'reconnecting');
  });
  await clock.advance(2_000);
  await Promise.all(calls);
  assert.deepEqual(published(peer), [1]);
  await ps.close();
});

test('the first calls have the error of a client that fails, even if their part never loads', async () => {
  const getToken = () => {
    throw new AuthRefused('Logged out.');
  };
  const { ps, clock } = virtualClient({ getToken });
  await operations(never, async () => {
    const refused = { code: 'auth_refused', message: 'Logged out.' };
    await Promise.all([
      assert.rejects(ps.publish('a.b', { data: 1 }), refused),
      assert.rejects(ps.publishMany([['a.b', { data: 2 }]]), refused),
      assert.rejects(ps.subscribe('a.b'), refused),
      assert.rejects(ps.updatePresence('a.b', { status: 'away' }), refused),
      assert.rejects(ps.connect(), refused),
    ]);
  });
  assert.equal(clock.pending, 0);
});

test('a call with a timeout that is not valid leaves nothing to a client that fails', async () => {
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  process.on('unhandledRejection', note);
  const getToken = () => {
    throw new AuthRefused('Logged out.');
  };
  const { ps } = virtualClient({ getToken });
  await assert.rejects(ps.subscribe('a.b', { timeout: -1 }), { code: 'invalid_option' });
  await assert.rejects(ps.connect(), { code: 'auth_refused' });
  await turns();
  process.off('unhandledRejection', note);
  assert.deepEqual(unhandled, []);
});

test('a call with a timeout that is not valid does not load a part', async () => {
  const { ps } = virtualClient();
  let loads = 0;
  const count = () => {
    loads += 1;
    return broken();
  };
  await loading('arguments', count, async () => {
    const publish = ps.publish('not a topic', { data: 1 }, { timeout: -1 });
    await assert.rejects(publish, { code: 'invalid_option', field: 'timeout' });
  });
  assert.equal(loads, 0);
  await ps.close();
});

test('a part that does not load in time has no cause from an earlier call', async () => {
  const { ps, clock } = virtualClient();
  await operations(broken, async () => {
    const failed = assert.rejects(ps.publish('a.b', { data: 1 }, { timeout: 100 }), {
      cause: NETWORK,
    });
    await clock.advance(100);
    await failed;
  });
  await loading('arguments', never, async () => {
    const publish = ps.publish('not a topic', { data: 1 }, { timeout: 100 });
    const failed = publish.catch((error: ConnectionFailed) => error);
    await clock.advance(100);
    const { code, cause } = (await failed) as ConnectionFailed;
    assert.deepEqual([code, cause], ['connection_failed', undefined]);
  });
  await ps.close();
});

test('a signal that is aborted just after a part has loaded leaves no subscription', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  for (let late = 0; late < 12; late += 1) {
    const stop = new AbortController();
    const abortLater = async (loaded: Promise<unknown>): Promise<void> => {
      await loaded;
      for (let turn = 0; turn < late; turn += 1) await undefined;
      stop.abort();
    };
    const load = (usual: (typeof PARTS)['arguments']) => {
      const loaded = usual();
      void abortLater(loaded);
      return loaded;
    };
    await loading('arguments', load, async () => {
      const options = { types: ['note'], onMessage: () => {}, signal: stop.signal };
      const cancelled = (error: Error): void => assert.equal(error.name, 'AbortError');
      await ps.subscribe('a.b', options).catch(cancelled);
    });
    await turns();
    const [asked, left] = ['subscribe', 'unsubscribe'].map((type) => peer.socket.frames(type));
    assert.equal(asked?.length, left?.length, `aborted ${late} turns after the part`);
  }
  await ps.close();
});

test('a client notices a suspension although its operations did not load at first', async () => {
  const { ps, peer, clock } = virtualClient();
  await operations(broken, async () => {
    const failed = assert.rejects(ps.connect({ timeout: 100 }), { cause: NETWORK });
    await clock.advance(100);
    await failed;
  });
  const again = ps.connect();
  await clock.advance(2_000);
  await again;
  const before = peer.sockets.length;
  clock.sleep(3_600_000, false);
  await clock.advance(5_001);
  assert.equal(peer.sockets.length, before + 1);
  assert.equal(ps.state, 'connected');
  await ps.close();
});

test('a publish that is cancelled while a part loads does not let others overtake', async () => {
  const { ps, peer } = virtualClient();
  const gate = deferred<void>();
  await operations(
    (usual) => gate.promise.then(usual),
    async () => {
      const stop = new AbortController();
      const first = ps.publish('a.b', { data: 1 });
      const second = ps.publish('a.b', { data: 2 }, { signal: stop.signal });
      stop.abort();
      await assert.rejects(second, { name: 'AbortError' });
      const third = ps.publish('a.b', { data: 3 });
      await turns();
      gate.resolve();
      await Promise.all([first, third]);
    },
  );
  assert.deepEqual(published(peer), [1, 3]);
  await ps.close();
});

for (const policy of ['latest', 'drop_oldest', 'block'] as const) {
  test(`later publishes do not overtake a first batch with the policy ${policy}`, async () => {
    const { ps, peer } = virtualClient({ sendQueue: { policy } });
    await ps.connect();
    await Promise.all([
      ps.publishMany([
        ['a.b', { data: 1 }],
        ['a.b', { data: 2 }],
      ]),
      ps.publish('a.b', { data: 3 }),
    ]);
    assert.deepEqual(published(peer), [1, 2, 3]);
    await ps.close();
  });
}

test('a batch has the messages that its list had at the call', async () => {
  const { ps, peer } = virtualClient();
  const pending = [{ topic: 'a.b', data: 1 }];
  const results = ps.publishMany(pending);
  pending.length = 0;
  assert.equal((await results).length, 1);
  assert.deepEqual(published(peer), [1]);
  await ps.close();
});

test('closing sends the publishes that wait for a part', async () => {
  const { ps, peer } = virtualClient();
  const gate = deferred<void>();
  await operations(
    (usual) => gate.promise.then(usual),
    async () => {
      const all = [ps.publish('a.b', { data: 1 }), ps.publishMany([['a.b', { data: 2 }]])];
      const closed = ps.close();
      await assert.rejects(ps.publish('a.b', { data: 3 }), { code: 'closed' });
      gate.resolve();
      await Promise.all([...all, closed]);
    },
  );
  assert.deepEqual(published(peer), [1, 2]);
  assert.equal(ps.state, 'closed');
});

test('closing waits for a part no longer than for an answer', async () => {
  const { ps, peer, clock } = virtualClient({ closeTimeout: 2_000 });
  peer.isDown = true;
  await operations(never, async () => {
    const publish = ps.publish('a.b', { data: 1 }, { timeout: 5_000 });
    const failed = assert.rejects(publish, { code: 'closed' });
    const closed = ps.close();
    await clock.advance(2_000);
    await closed;
    await failed;
  });
  assert.equal(clock.pending, 0);
});

test('closing ends at once when the part of the waiting calls does not load', async () => {
  const { ps, peer, clock } = virtualClient();
  peer.isDown = true;
  const gate = deferred<void>();
  await operations(
    () => gate.promise.then(broken),
    async () => {
      const failed = assert.rejects(ps.publish('a.b', { data: 1 }), { cause: NETWORK });
      const closed = ps.close();
      await turns();
      gate.resolve();
      await closed;
      await failed;
    },
  );
  assert.equal(clock.now(), 0);
  assert.equal(clock.pending, 0);
});

test('closing ends at once when the call that waits for a part is cancelled', async () => {
  const { ps, peer, clock } = virtualClient();
  peer.isDown = true;
  await operations(never, async () => {
    const stop = new AbortController();
    const publish = ps.publish('a.b', { data: 1 }, { signal: stop.signal });
    const failed = assert.rejects(publish, { name: 'AbortError' });
    const closed = ps.close();
    await turns();
    stop.abort();
    await closed;
    await failed;
  });
  assert.equal(clock.now(), 0);
  assert.equal(clock.pending, 0);
});

test('calls time out even if the operations do not load', async () => {
  const { ps, peer, clock } = virtualClient();
  peer.isDown = true;
  await operations(never, async () => {
    const failed = Promise.all([
      assert.rejects(ps.publish('a.b', { data: 1 }, { timeout: 1_000 }), ConnectionFailed),
      assert.rejects(ps.subscribe('a.b', { timeout: 1_000 }), ConnectionFailed),
    ]);
    await clock.advance(2_000);
    await failed;
  });
  await ps.close();
});

for (const [what, call] of [
  ['publish', (ps) => ps.publish('a.b', { data: 1 })],
  [
    'batch',
    async (ps) => {
      const [result] = await ps.publishMany([['a.b', { data: 1 }]]);
      throw result;
    },
  ],
  ['subscription', (ps) => ps.subscribe('a.b')],
  ['subscription with types', (ps) => ps.subscribe('a.b', { types: ['token'] })],
  ['subscription with presence', (ps) => ps.subscribe('a.b', { presence: true })],
  ['presence update', (ps) => ps.updatePresence('a.b', { status: 'here' })],
] as const satisfies readonly (readonly [string, (ps: PubSub) => Promise<unknown>])[]) {
  test(`a ${what} whose part loads after the client has failed rejects with the reason`, async () => {
    for (const part of ['operations', 'arguments'] as const) {
      const { ps, peer } = virtualClient();
      const gate = deferred<void>();
      const hold = (usual: () => Promise<unknown>) => gate.promise.then(usual);
      peer.silent.add('auth');
      const body = async () => {
        const failed = assert.rejects(call(ps), { code: 'token_invalid', message: 'Not yours.' });
        await turns();
        peer.socket.receive({ type: 'auth.error', code: 'token_invalid', message: 'Not yours.' });
        await turns();
        assert.equal(ps.state, 'failed');
        gate.resolve();
        await failed;
      };
      await (part === 'operations' ? operations(hold, body) : loading(part, hold, body));
    }
  });
}

test('the client keeps nothing of a denied subscription', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  peer.silent.add('subscribe');
  const subscribing = ps.subscribe('a.b');
  await turns();
  const { ref } = peer.socket.frames('subscribe')[0] as { readonly ref: string };
  peer.socket.receive({ type: 'error', code: 'forbidden', message: 'No.', ref });
  await assert.rejects(subscribing, PermissionDenied);
  const { _driver: driver } = ps as unknown as { readonly _driver: Driver };
  assert.equal(driver._background?.deliveries.inboxes.size, 0);
  await ps.close();
});
