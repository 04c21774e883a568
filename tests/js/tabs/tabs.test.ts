import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { after, afterEach, before, type TestContext, test } from 'node:test';
import { WebSocketServer } from 'ws';

import type { ClientFrame } from '../../../js/src/generated/wire.js';
import type { Message, PubSub, PubSubOptions } from '../../../js/src/index.js';
import { platform } from '../../../js/src/runtime/environment.js';
import { readOptions } from '../../../js/src/settings/read_options.js';
import { groupOf, MOVED } from '../../../js/src/tabs/group.js';
import { linkTabs } from '../../../js/src/tabs/link.js';
import { startRelay } from '../../../js/src/tabs/relay.js';
import { BOUND, bounded, deferred, Server } from '../runtime/server.js';
import { FROM_SERVER, FROM_TAB, GROUP, TO_SERVER, TO_TABS } from './formats.js';
import { Locks } from './locks.js';
import { Wire } from './wire.js';

let server: Server;
let token: string;
let service: string;
const locks = new Locks();

before(async () => {
  Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
  server = await Server.start(
    '--publish-rate-service',
    '10000',
    '--publish-rate-user',
    '10000',
    '--history-max-messages',
    '5000',
  );
  token = server.token('--user', 'alice', '--org', 'acme');
  service = server.token('--user', 'worker', '--org', 'acme', '--service');
});
after(() => server.stop());

const opened: PubSub[] = [];

function tab(wire: Wire, options: PubSubOptions = {}): PubSub {
  const given = { token, shareTabs: true, WebSocket: wire.WebSocket, ...options };
  const client = server.client(given);
  opened.push(client);
  return client;
}

/** Leftovers of one test would be shared with the next one. */
afterEach(() => Promise.all(opened.splice(0).map((client) => client.close({ timeout: 0 }))));

/** Wait until a condition holds. */
async function until(holds: () => boolean, what: string): Promise<void> {
  const end = Date.now() + BOUND;
  while (!holds()) {
    if (Date.now() > end) throw new Error(`${what} did not come`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** A token with changed claims, whose signature is therefore invalid. */
function forged(token: string, claims: object): string {
  const [head, payload, signature] = token.split('.');
  const read = JSON.parse(Buffer.from(payload ?? '', 'base64url').toString());
  const text = JSON.stringify({ ...read, ...claims });
  return [head, Buffer.from(text).toString('base64url'), signature].join('.');
}

/** Record everything that a subscription receives, until this many have arrived. */
function collector(count: number): {
  readonly got: unknown[];
  readonly all: Promise<void>;
  readonly onMessage: (message: Message) => void;
} {
  const got: unknown[] = [];
  const { promise, resolve } = deferred<void>();
  const onMessage = ({ data }: Message): void => {
    got.push(data);
    if (got.length === count) resolve();
  };
  return { got, all: promise, onMessage };
}

test('tabs of one identity share one socket, and each gets every message', async () => {
  const wire = new Wire();
  const tabs = Array.from({ length: 20 }, () => tab(wire));
  const seen = await Promise.all(
    tabs.map(async (one) => {
      const seen = collector(3);
      await one.subscribe('demo.shared', { onMessage: seen.onMessage });
      return seen;
    }),
  );
  assert.equal(wire.open, 1);
  for (const [n, one] of tabs.slice(0, 3).entries()) await one.publish('demo.shared', { data: n });
  await bounded(Promise.all(seen.map(({ all }) => all)), 'every message in every tab');
  for (const { got } of seen) assert.deepEqual(got, [0, 1, 2]);
  assert.equal(wire.sockets.length, 1);
  await Promise.all(tabs.map((one) => one.close()));
  assert.equal(wire.open, 0);
});

test('if the tab with the socket closes, another tab continues, and nothing is lost', async () => {
  const wire = new Wire();
  const publisher = server.client({ token: service });
  const tabs = Array.from({ length: 21 }, () => tab(wire));
  const total = 400;
  const seen = tabs.map(() => collector(total));
  for (const [n, one] of tabs.entries()) {
    await one.subscribe('demo.handover', { onMessage: seen[n]?.onMessage });
  }
  let published = 0;
  const publishing = (async () => {
    for (; published < total; published += 1) {
      await publisher.publish('demo.handover', { data: published });
    }
  })();
  for (let turn = 1; turn <= 20; turn += 1) {
    const goal = turn * 15;
    const last = seen[20]?.got ?? [];
    await until(() => last.length >= goal, `message ${goal}`);
    await tabs[turn - 1]?.close();
  }
  await bounded(publishing, 'the publisher');
  await bounded((seen[20] as (typeof seen)[0]).all, 'the last message');
  assert.deepEqual(
    seen[20]?.got,
    Array.from({ length: total }, (_, n) => n),
  );
  for (const [n, { got }] of seen.entries()) {
    assert.deepEqual(
      got,
      got.map((_, at) => at),
      `tab ${n}`,
    );
  }
  // The last message may have arrived before the last handover.
  await until(() => wire.open === 1, 'the socket of the last tab');
  await tabs[20]?.close();
  await publisher.close();
});

test('different users and names do not share a connection; a renewed token does', async () => {
  const wire = new Wire();
  const tabs = [
    tab(wire),
    tab(wire, { token: server.token('--user', 'alice', '--org', 'acme', '--ttl', '7200') }),
    tab(wire, { token: `Bearer ${token}` }),
    tab(wire, { token: server.token('--user', 'bob', '--org', 'acme') }),
    tab(wire, { token: server.token('--user', 'alice', '--org', 'other') }),
    tab(wire, { shareTabs: 'apart' }),
    tab(wire, { shareTabs: false }),
  ];
  for (const one of tabs) await one.connect();
  assert.equal(wire.open, 5);
  await Promise.all(tabs.map((one) => one.close()));
});

test('the name that tabs share under contains no token', async () => {
  const options = readOptions({ url: server.ws, token, shareTabs: true });
  const name = await groupOf(options, token);
  assert.match(name, /^hanzo-pubsub 2 [0-9,]+$/);
  assert.equal(name, await groupOf(options, `Bearer ${token}`));
  assert.equal(name, await groupOf(options, forged(token, { exp: 1, iat: 2, nbf: 3, jti: '4' })));
  assert.notEqual(name, await groupOf(options, forged(token, { scope: 'more' })));
});

test('tokens without a subject are distinguished by their whole text', async () => {
  const options = readOptions({ url: server.ws, token, shareTabs: true });
  const encode = (payload: unknown): string =>
    `x.${Buffer.from(JSON.stringify(payload)).toString('base64url')}.x`;
  const tokens = [
    'key_1',
    'key_2',
    'v2.public.one',
    'v2.public.two',
    encode(5),
    encode(6),
    encode(null),
    encode([]),
    encode({ jti: 'one', exp: 1 }),
    encode({ jti: 'two', exp: 1 }),
    encode({ sub: '', jti: 'one' }),
    encode({ sub: '', jti: 'two' }),
    `${encode({ user: 'a' })}1`,
    `${encode({ user: 'a' })}2`,
  ];
  const names = await Promise.all(tokens.map((each) => groupOf(options, each)));
  assert.equal(new Set(names).size, tokens.length);
});

test('the last tab with a pattern unsubscribes it at the server', async () => {
  const wire = new Wire();
  const [one, two] = [tab(wire), tab(wire)];
  const first = await one.subscribe(['demo.both', 'demo.one']);
  const second = await two.subscribe('demo.both');
  await first.unsubscribe();
  await until(() => wire.count('unsubscribe') === 1, 'the first end');
  await second.unsubscribe();
  await until(() => wire.count('unsubscribe') === 2, 'the second end');
  const ended = wire.sent.filter(({ type }) => type === 'unsubscribe');
  assert.deepEqual(
    ended.map(({ topics }) => topics),
    [['demo.one'], ['demo.both']],
  );
  await Promise.all([one.close(), two.close()]);
});

test('a closed tab ends the subscriptions that only it had', async () => {
  const wire = new Wire();
  const [one, two] = [tab(wire), tab(wire)];
  await one.connect();
  await two.subscribe(['demo.left', 'demo.kept']);
  await one.subscribe('demo.kept');
  await two.close();
  await until(() => wire.count('unsubscribe') === 1, 'the end');
  assert.deepEqual(wire.sent.find(({ type }) => type === 'unsubscribe')?.['topics'], ['demo.left']);
  assert.equal(wire.open, 1);
  await one.close();
});

test('a tab receives presence if it asks for it, whatever other tabs ask for', async () => {
  const wire = new Wire();
  const [one, two] = [tab(wire), tab(wire)];
  const names = new Set<string>();
  await one.subscribe('demo.present', {
    onPresence: (members) => {
      for (const { user_id } of members) names.add(user_id);
    },
  });
  await two.subscribe('demo.present');
  const bob = server.client({ token: server.token('--user', 'bob') });
  await bob.subscribe('demo.present');
  await until(() => names.has('bob'), 'bob');
  assert.deepEqual([...names].sort(), ['alice', 'bob']);
  await Promise.all([one.close(), two.close(), bob.close()]);
});

test('after a cut, one new socket resumes, and nothing is lost', async () => {
  const wire = new Wire();
  const tabs = Array.from({ length: 5 }, () => tab(wire));
  const seen = tabs.map(() => collector(30));
  for (const [n, one] of tabs.entries()) {
    await one.subscribe('demo.cut', { onMessage: seen[n]?.onMessage });
  }
  const publisher = server.client({ token: service });
  for (let n = 0; n < 30; n += 1) {
    if (n === 10 || n === 20) await server.fault({ fault: 'drop', user: 'alice' });
    await publisher.publish('demo.cut', { data: n });
  }
  await bounded(Promise.all(seen.map(({ all }) => all)), 'everything');
  for (const { got } of seen) assert.deepEqual(got, [...Array(30).keys()]);
  assert.equal(wire.open, 1);
  await Promise.all([...tabs, publisher].map((one) => one.close()));
});

test('a new token is sent over the open socket', async () => {
  const wire = new Wire();
  let ttl = 3_600;
  const getToken = (): string => {
    ttl += 60;
    return server.token('--user', 'alice', '--org', 'acme', '--ttl', `${ttl}`);
  };
  const tabs = Array.from({ length: 10 }, () => tab(wire, { getToken, token: undefined }));
  await Promise.all(tabs.map((one) => one.connect()));
  const before = wire.received('auth.ok');
  await server.fault({ fault: 'expire', user: 'alice', ms: 30_000 });
  await until(() => wire.received('auth.ok') > before, 'the answer');
  await tabs[2]?.publish('demo.renewed', { data: 1 });
  assert.equal(wire.sockets.length, 1);
  // The server checks one token at a time, and reports this with an error.
  assert.equal(wire.received('error'), 0);
  assert.deepEqual(new Set(tabs.map(({ state }) => state)), new Set(['connected']));
  await Promise.all(tabs.map((one) => one.close()));
});

test('a rejected token concerns only the tab that has it', async () => {
  const wire = new Wire();
  let bad = '';
  const getToken = (): string => bad || token;
  const one = tab(wire);
  const two = tab(wire, { getToken, token: undefined });
  await one.connect();
  await two.connect();
  const states: string[] = [];
  two.on('state', ({ to }) => states.push(to));
  bad = forged(token, { exp: 9_999_999_999 });
  await server.fault({ fault: 'expire', user: 'alice', ms: 30_000 });
  await until(() => wire.received('auth.error') === 1, 'the refusal');
  bad = '';
  await until(() => states.includes('reconnecting'), 'the other attempt');
  await two.connect();
  await one.publish('demo.refused', { data: 1 });
  assert.equal(wire.sockets.length, 1);
  await Promise.all([one.close(), two.close()]);
});

test('a tab with another identity leaves the group', async () => {
  const wire = new Wire();
  let now = token;
  const one = tab(wire);
  const two = tab(wire, { getToken: () => now, token: undefined });
  await one.connect();
  await two.connect();
  now = server.token('--user', 'bob', '--org', 'acme');
  await server.fault({ fault: 'expire', user: 'alice', ms: 30_000 });
  await until(() => wire.open === 2, 'a socket of its own');
  await two.connect();
  assert.equal(one.state, 'connected');
  assert.equal(wire.received('auth.error'), 0);
  await Promise.all([one.close(), two.close()]);
});

test('one ping is enough for all tabs', async () => {
  const wire = new Wire();
  const tabs = Array.from({ length: 10 }, () =>
    tab(wire, { pingInterval: 60, pongTimeout: 5_000 }),
  );
  for (const one of tabs) await one.connect();
  await until(() => wire.received('pong') >= 5, 'signs of life');
  assert.ok(wire.count('ping') < 30, `${wire.count('ping')} pings`);
  assert.deepEqual(new Set(tabs.map(({ state }) => state)), new Set(['connected']));
  assert.equal(wire.sockets.length, 1);
  await Promise.all(tabs.map((one) => one.close()));
});

test('a silent connection is closed, and replaced by one new connection', async () => {
  const wire = new Wire();
  const tabs = [1, 2, 3].map(() => tab(wire, { pingInterval: 50, pongTimeout: 200 }));
  for (const one of tabs) await one.connect();
  await server.fault({ fault: 'freeze', user: 'alice' });
  await until(() => wire.sockets.length > 1, 'another socket');
  await server.fault({ fault: 'freeze', user: 'alice', on: false });
  for (const one of tabs) await one.publish('demo.silent', { data: 1 });
  await until(() => wire.open === 1, 'the end of the others');
  await Promise.all(tabs.map((one) => one.close()));
});

test('a tab that does not answer loses the lock', async () => {
  const wire = new Wire();
  const group = await groupOf(readOptions({ url: server.ws, token, shareTabs: true }), token);
  let lost = false;
  locks
    .request(group, {}, () => new Promise(() => {}))
    .catch(() => {
      lost = true;
    });
  const one = tab(wire, { openTimeout: 1_000 });
  await one.connect();
  assert.equal(lost, true);
  assert.equal(wire.open, 1);
  await one.close();
});

test('the subscriptions of a crashed tab are ended', async () => {
  const wire = new Wire();
  const one = tab(wire);
  await one.connect();
  const group = await groupOf(readOptions({ url: server.ws, token, shareTabs: true }), token);
  const died = deferred<void>();
  await new Promise<void>((held) => {
    void locks.request(`${group} ghost`, {}, () => {
      held();
      return died.promise;
    });
  });
  const channel = new BroadcastChannel(group);
  const frame = { type: 'subscribe', topics: ['demo.ghost'], ref: 's1' };
  channel.postMessage({ tab: 'ghost', frame });
  await until(() => wire.received('subscribed') === 1, 'the subscription');
  died.resolve();
  await until(() => wire.count('unsubscribe') === 1, 'its end');
  channel.close();
  await one.close();
});

/** A relay with a socket to which the test passes the frames of the server. */
function relayOf(t: TestContext, group: string) {
  const listeners = new Map<string, (event: object) => void>();
  class Socket {
    readonly readyState = 1;
    addEventListener(name: string, listener: (event: object) => void): void {
      listeners.set(name, listener);
    }
    send(data: string): void {
      sent.push(JSON.parse(data));
    }
    close(): void {}
  }
  const sent: object[] = [];
  const given = { url: 'ws://127.0.0.1:9/ws', token: 'x', WebSocket: Socket };
  const options = readOptions(given as unknown as PubSubOptions);
  const reported: unknown[] = [];
  /** To one tab or to all: what it is about. */
  const addressed: (readonly [to: string, what: unknown])[] = [];
  const messages: object[] = [];
  const channel = new BroadcastChannel(group);
  channel.onmessage = ({ data }) => {
    const { begun, frame, end, to } = data;
    messages.push(JSON.parse(JSON.stringify({ ...data, relay: 'relay' })));
    reported.push(begun ?? frame ?? end ?? to);
    addressed.push([to ?? 'all', frame?.type ?? end?.code]);
  };
  t.after(() => channel.close());
  const stop = startRelay(group, options, platform.clock, () => {});
  listeners.get('open')?.({});
  const receive = (data: string): void => listeners.get('message')?.({ data });
  const close = (code: number): void => listeners.get('close')?.({ code });
  return { reported, addressed, messages, sent, channel, stop, receive, close };
}

test('a tab sends and reads the recorded messages', async (t) => {
  const options = readOptions({ url: 'ws://127.0.0.1:9/ws', token: 'x', shareTabs: true });
  const group = await groupOf(options, 'x');
  const [first, ...others] = FROM_TAB.map(({ frame }) => frame as ClientFrame);
  const { promise: over, resolve } = deferred<void>();
  const channel = new BroadcastChannel(group);
  const posted: { readonly tab: string; readonly frame: object }[] = [];
  channel.onmessage = ({ data }) => void posted.push(data);
  t.after(() => {
    resolve();
    channel.close();
  });
  // The relay is in another tab.
  void locks.request(group, {}, () => over);
  const read: unknown[] = [];
  const link = linkTabs(options, platform.clock);
  link.open({
    opened: () => link.send([first as ClientFrame]),
    frame: (frame) => void read.push(frame),
    ended: (end) => void read.push(end),
  });
  await until(() => posted.length === 1, 'the authentication');
  link.send(others);
  await until(() => posted.length === FROM_TAB.length, 'the frames of the tab');
  assert.deepEqual(
    posted.map((each) => ({ ...each, tab: 'a' })),
    FROM_TAB,
  );
  const to = posted[0]?.tab;
  // The first message of a relay that begins asks for the authentication again.
  for (const each of TO_TABS.slice(1)) channel.postMessage(each.to ? { ...each, to } : each);
  const expected = TO_TABS.flatMap(({ frame, end }) => frame ?? end ?? []);
  await until(() => read.length === expected.length, 'the messages of the relay');
  assert.deepEqual(read, expected);
});

test('a relay sends and reads the recorded messages', async (t) => {
  const options = readOptions({ url: 'ws://127.0.0.1:9/ws', token: 'x', shareTabs: true });
  assert.ok((await groupOf(options, 'x')).startsWith(GROUP));
  const { messages, sent, channel, stop, receive } = relayOf(t, 'recorded messages');
  for (const each of FROM_TAB) channel.postMessage(each);
  await until(() => sent.length === FROM_TAB.length, 'the frames of the tab');
  for (const each of FROM_SERVER) receive(JSON.stringify(each));
  await until(() => messages.length === TO_TABS.length - 1, 'the frames of the server');
  stop(1000);
  await until(() => messages.length === TO_TABS.length, 'the end');
  assert.deepEqual(sent, TO_SERVER);
  assert.deepEqual(messages, TO_TABS);
});

test('a relay may stop while a frame of the server is being read', async (t) => {
  const { reported, stop, receive } = relayOf(t, 'a relay that stops');
  receive('{"type":"pong","ref":"a:1"}');
  stop(1000);
  await until(() => reported.length === 3, 'the frame');
  assert.deepEqual(reported, [true, MOVED, { type: 'pong', ref: '1' }]);
});

/** A frame of a tab with a token that expires at this time. */
function auth(tab: string, exp: number): object {
  const token = `x.${btoa(JSON.stringify({ sub: 'alice', exp }))}.x`;
  return { tab, frame: { type: 'auth', token, version: 1 } };
}

const REJECTED = '{"type":"auth.error","code":"token_invalid","message":"No."}';

test('a token that the server rejects first ends only the tabs that have it', async (t) => {
  const { addressed, channel, stop, receive, close } = relayOf(t, 'a first token');
  for (const [tab, exp] of Object.entries({ a: 9, b: 5, c: 9 }))
    channel.postMessage(auth(tab, exp));
  await until(() => addressed.length === 4, 'the confirmations');
  receive(REJECTED);
  close(4401);
  await until(() => addressed.length === 8, 'the end');
  assert.deepEqual(addressed.slice(4), [
    ['a', 'auth.error'],
    ['c', 'auth.error'],
    ['all', MOVED.code],
    ['all', 4401],
  ]);
  stop(1000);
});

test('a token that the server rejects later ends no connection of another tab', async (t) => {
  const { addressed, channel, stop, receive } = relayOf(t, 'a later token');
  channel.postMessage(auth('a', 5));
  await until(() => addressed.length === 2, 'the confirmation');
  receive('{"type":"auth.ok","client_id":"me"}');
  channel.postMessage(auth('b', 9));
  await until(() => addressed.length === 4, 'the answer');
  receive(REJECTED);
  await until(() => addressed.length === 5, 'the rejection');
  assert.deepEqual(addressed.slice(1), [
    ['a', undefined],
    ['all', 'auth.ok'],
    ['b', undefined],
    ['b', 'auth.error'],
  ]);
  stop(1000);
});

test('a relay that has stopped answers no tab', async (t) => {
  const { reported, channel, stop, receive } = relayOf(t, 'a relay that has stopped');
  // It is read by a part of the client, which may not be loaded yet.
  receive('{"type":"unknown"}');
  receive('{"type":"pong","ref":"a:1"}');
  stop(1000);
  channel.postMessage({ tab: 'b', frame: { type: 'auth', token: 'x', version: 1 } });
  await until(() => reported.length === 3, 'the frame');
  assert.deepEqual(reported, [true, MOVED, { type: 'pong', ref: '1' }]);
});

test('no lock is held when all tabs are closed', () => {
  const ours = locks.held.filter((name) => !name.endsWith('ghost'));
  assert.deepEqual(ours, []);
});

test('with a server without `ref`, every tab opens its own socket', async () => {
  const plain = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(plain, 'listening');
  plain.on('connection', (socket) => {
    socket.on('message', (data) => {
      const { type, topics } = JSON.parse(String(data));
      if (type === 'auth') socket.send('{"type":"auth.ok","client_id":"cl_1"}');
      if (type === 'subscribe') socket.send(JSON.stringify({ type: 'subscribed', topics }));
    });
  });
  const wire = new Wire();
  const url = `ws://127.0.0.1:${(plain.address() as AddressInfo).port}/ws`;
  const tabs = [tab(wire, { url }), tab(wire, { url })];
  for (const one of tabs) await one.subscribe('demo.plain');
  await until(() => wire.open === 2, 'two sockets');
  await Promise.all(tabs.map((one) => one.close()));
  plain.close();
  await once(plain, 'close');
});

test('without locks or channels, every tab has its own socket', async () => {
  const wire = new Wire();
  Object.defineProperty(globalThis, 'navigator', { value: {}, configurable: true });
  try {
    const tabs = [tab(wire), tab(wire)];
    for (const one of tabs) {
      const sub = await one.subscribe('demo.alone');
      assert.deepEqual(sub.topics, ['demo.alone']);
    }
    assert.equal(wire.open, 2);
    await Promise.all(tabs.map((one) => one.close()));
  } finally {
    Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
  }
});

test('in Node 24, whose locks keep the processor busy, every thread has its own socket', async () => {
  const wire = new Wire();
  const navigator = { locks, userAgent: 'Node.js/24' };
  Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true });
  try {
    const threads = [tab(wire), tab(wire)];
    for (const one of threads) await one.subscribe('demo.threads');
    assert.equal(wire.open, 2);
    await Promise.all(threads.map((one) => one.close()));
  } finally {
    Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
  }
});

test('if the platform refuses locks, every tab has its own socket', async () => {
  const wire = new Wire();
  const refusing = { request: () => Promise.reject(new DOMException('no', 'SecurityError')) };
  Object.defineProperty(globalThis, 'navigator', {
    value: { locks: refusing },
    configurable: true,
  });
  try {
    const one = tab(wire);
    await one.publish('demo.refusing', { data: 1 });
    assert.equal(wire.open, 1);
    await one.close();
  } finally {
    Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
  }
});
