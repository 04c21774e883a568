/** What a client with `recover` stores in `sessionStorage`, and when it continues from it. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import { PubSub } from '../../../js/src/index.js';
import { turns, type VirtualClock, virtualClient } from './virtual.js';

type Listener = (event: { readonly persisted?: boolean }) => void;

/** A tab: its storage, and the events of its window. */
function openTab(t: TestContext, copied: ReadonlyMap<string, string> = new Map()) {
  const stored = new Map(copied);
  const listeners: [type: string, listener: Listener, signal?: AbortSignal | undefined][] = [];
  const storage = {
    getItem: (key: string) => stored.get(key) ?? null,
    setItem: (key: string, value: string) => stored.set(key, value),
    removeItem: (key: string) => stored.delete(key),
  };
  const window = {
    sessionStorage: storage,
    addEventListener: (
      type: string,
      listener: Listener,
      options?: { readonly signal?: AbortSignal },
    ) => listeners.push([type, listener, options?.signal]),
  };
  for (const [name, value] of Object.entries(window)) {
    const before = Object.getOwnPropertyDescriptor(globalThis, name);
    Object.defineProperty(globalThis, name, { value, configurable: true });
    t.after(() => {
      if (before) Object.defineProperty(globalThis, name, before);
      else Reflect.deleteProperty(globalThis, name);
    });
  }
  const tell = (type: string, persisted = false): void => {
    for (const [wanted, listener, signal] of listeners) {
      if (wanted === type && !signal?.aborted) listener({ persisted });
    }
  };
  /** The number of listeners that the window still has. */
  const listening = (): number => listeners.filter(([, , signal]) => !signal?.aborted).length;
  /** Hide the page; the next page finds what it has stored. */
  const reload = (): void => {
    tell('pagehide');
    listeners.length = 0;
  };
  return { stored, storage, tell, reload, listening };
}

/** A time after the start time of a new page's clock. */
async function wait(clock: VirtualClock, milliseconds: number): Promise<void> {
  clock.sleep(milliseconds, false);
  await turns();
}

test('the next page resumes the same client, after the messages that the last one received', async (t) => {
  const tab = openTab(t);
  const first = virtualClient({ recover: true });
  first.peer.silent.add('subscribe');
  const joining = first.ps.subscribe('a.b');
  await turns();
  const [{ ref }] = first.peer.socket.frames('subscribe') as [{ ref: string }];
  const answer = { type: 'subscribed', topics: ['a.b'], timestamp: 1, positions: { 'a.b': 0 } };
  first.peer.socket.receive({ ...answer, ref });
  const sub = await joining;
  for (const data of [1, 2, 3]) first.peer.socket.receive(first.peer.message('a.b', data));
  await turns();
  const { value } = await sub[Symbol.asyncIterator]().next();
  assert.equal(value?.data, 1);
  assert.equal(tab.stored.size, 0, 'nothing is kept while the page is there');
  tab.reload();
  assert.equal(first.peer.socket.closed, 4000);
  assert.equal(tab.stored.size, 1);
  assert.doesNotMatch([...tab.stored.values()].join(), /token/);

  const next = virtualClient({ recover: true });
  await next.ps.subscribe('a.b');
  assert.equal(next.peer.socket.frames('auth')[0]?.['client_id'], 'c1');
  assert.deepEqual(next.peer.socket.frames('subscribe')[0]?.['after'], { 'a.b': 1 });
  assert.equal(tab.stored.size, 0, 'a duplicate of this tab begins as another client');

  const other = virtualClient({ recover: 'other' });
  await other.ps.subscribe('a.b');
  assert.equal(other.peer.socket.frames('auth')[0]?.['client_id'], undefined);
});

for (const topic of ['constructor', '__proto__']) {
  test(`the next page repeats what was not read of the topic ${topic}`, async (t) => {
    const tab = openTab(t);
    const first = virtualClient({ recover: true });
    // Two subscriptions of the page to the same topic: the one that has read less counts.
    const subs = [await first.ps.subscribe(topic), await first.ps.subscribe(topic)];
    for (const data of [1, 2, 3]) first.peer.socket.receive(first.peer.message(topic, data));
    await turns();
    for (const sub of subs) await sub[Symbol.asyncIterator]().next();
    tab.reload();

    const next = virtualClient({ recover: true });
    await next.ps.subscribe(topic);
    const [asked] = next.peer.socket.frames('subscribe');
    assert.deepEqual(Object.entries(asked?.['after'] ?? {}), [[topic, 1]]);
  });
}

test('if a topic has no message yet, the next page starts where the last one did', async (t) => {
  const tab = openTab(t);
  const first = virtualClient({ recover: true });
  await first.ps.subscribe('a.*');
  tab.reload();
  const next = virtualClient({ recover: true });
  await next.ps.subscribe('a.*');
  assert.equal(next.peer.socket.frames('subscribe')[0]?.['since'], 0);
});

test('a subscription with a start position ignores the stored one', async (t) => {
  const tab = openTab(t);
  const first = virtualClient({ recover: true });
  await first.ps.subscribe('a.b');
  tab.reload();
  const next = virtualClient({ recover: true });
  await next.ps.subscribe('a.b', { history: 5 });
  const [asked] = next.peer.socket.frames('subscribe');
  assert.deepEqual(
    [asked?.['history'], asked?.['since'], asked?.['after']],
    [5, undefined, undefined],
  );
});

test('a page that is opened much later is a new client', async (t) => {
  const tab = openTab(t);
  const first = virtualClient({ recover: true });
  await first.ps.subscribe('a.b');
  tab.reload();
  const next = virtualClient({ recover: true });
  await wait(next.clock, 121_000);
  await next.ps.subscribe('a.b');
  assert.equal(next.peer.socket.frames('auth')[0]?.['client_id'], undefined);
});

test('a page restored from the cache reconnects, and keeps nothing in storage', async (t) => {
  const tab = openTab(t);
  const { ps, peer, clock } = virtualClient({ recover: true });
  await ps.subscribe('a.b');
  tab.tell('pagehide');
  tab.tell('pageshow', true);
  await clock.advance(1_000);
  assert.equal(tab.stored.size, 0);
  assert.equal(peer.sockets.length, 2);
  assert.equal(peer.socket.frames('auth')[0]?.['client_id'], 'c1');
  assert.equal(ps.state, 'connected');
});

test('if storage is forbidden, broken or missing, the client works without it', async (t) => {
  const tab = openTab(t);
  tab.storage.getItem = () => '{not JSON';
  tab.storage.setItem = () => {
    throw new Error('full');
  };
  const { ps } = virtualClient({ recover: true });
  await ps.subscribe('a.b');
  tab.tell('pagehide');
  Object.defineProperty(globalThis, 'sessionStorage', { value: undefined, configurable: true });
  const other = virtualClient({ recover: true });
  await other.ps.subscribe('a.b');
  assert.equal(other.ps.state, 'connected');
});

test('a client shares its connection with other tabs or recovers, not both', () => {
  const options = { url: 'ws://localhost/ws', token: 'x', shareTabs: true };
  assert.throws(() => new PubSub({ ...options, recover: true }), {
    code: 'invalid_option',
    field: 'recover',
  });
});

test('a page keeps nothing of the clients that have ended', async (t) => {
  const tab = openTab(t);
  for (let index = 0; index < 3; index += 1) {
    const { ps } = virtualClient({ recover: true });
    await ps.subscribe('a.b');
    assert.ok(tab.listening() > 0);
    ps.disconnect();
    await turns();
    assert.equal(tab.listening(), 0);
  }
  tab.reload();
  assert.equal(tab.stored.size, 0);
});

test('a client works in a simulated browser, whose page rejects the signals of Node', async (t) => {
  openTab(t);
  const value = (): never => {
    throw new TypeError('`signal` is not of type `AbortSignal`.');
  };
  Object.defineProperty(globalThis, 'addEventListener', { value, configurable: true });
  const { ps } = virtualClient({ recover: true });
  await ps.subscribe('a.b');
  assert.equal(ps.state, 'connected');
  await ps.close();
});
