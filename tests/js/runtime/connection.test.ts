import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { PubSubError } from '../../../js/src/errors.js';
import type { ServerFrame } from '../../../js/src/generated/wire.js';
import { Connection } from '../../../js/src/runtime/connection.js';
import type { Client } from '../../../js/src/runtime/environment.js';
import { withoutToken } from '../../../js/src/settings/checks.js';
import type { Receiver, Transport, TransportEnd } from '../../../js/src/transports/transport.js';
import { type Decoded, Malformed, Unknown } from '../../../js/src/wire/decoded.js';
import { deferred } from './server.js';
import { turns, VirtualClock, virtualClient } from './virtual.js';

const pong = (ref: string): ServerFrame => ({ type: 'pong', ref });

function reading() {
  const got: string[] = [];
  const ends: TransportEnd[] = [];
  const output: string[] = [];
  const clock = new VirtualClock();
  let receiver: Receiver | undefined;
  const closed: unknown[] = [];
  const transport: Transport = {
    incremental: true,
    lastReceived: 0,
    open: (given) => {
      receiver = given;
    },
    send: () => {},
    close: (code) => closed.push(code),
  };
  const receive = (frame: ServerFrame) => got.push((frame as { ref: string }).ref);
  const connection = new Connection(
    {
      session: { receive },
      clock,
      options: { logger: { debug: (text: string) => output.push(text) } },
      listeners: { report: ({ message }: Error) => output.push(message) },
      giveWay: false,
      handled: () => {},
      dropped: (end: TransportEnd) => ends.push(end),
    } as unknown as Client,
    transport,
  );
  transport.open(connection);
  assert.ok(receiver);
  return { got, ends, output, closed, clock, connection, receiver };
}

test('later frames wait for a frame that is not parsed yet', async () => {
  const { got, receiver, connection, clock } = reading();
  const later = deferred<Decoded>();
  receiver.frame(pong('1'));
  receiver.frame(later.promise);
  receiver.frame(pong('3'));
  await turns();
  assert.deepEqual(got, ['1']);
  assert.equal(connection.idle, 0);
  later.resolve(pong('2'));
  await turns();
  assert.deepEqual(got, ['1', '2', '3']);
  assert.equal(clock.pending, 0);
});

test('if a connection ends while a part loads, its frames are delivered before its end', async () => {
  const { got, ends, receiver } = reading();
  const later = deferred<Decoded>();
  receiver.frame(later.promise);
  receiver.ended({ code: 1001, reason: 'bye' });
  await turns();
  assert.deepEqual(ends, []);
  later.resolve(pong('1'));
  await turns();
  assert.deepEqual([got, ends], [['1'], [{ code: 1001, reason: 'bye' }]]);
});

test('if the part cannot be loaded, the connection ends with the reason', async () => {
  const { got, ends, closed, receiver, clock } = reading();
  receiver.frame(Promise.reject(new TypeError('offline')));
  receiver.frame(pong('2'));
  await turns();
  assert.deepEqual(got, []);
  assert.deepEqual(ends, [{ reason: 'A part of the client did not load.', retryAfter: 0 }]);
  assert.equal(closed.length, 1);
  assert.equal(clock.pending, 0);
});

test('the wait for a part has a timeout', async () => {
  const { ends, receiver, clock } = reading();
  receiver.frame(new Promise<never>(() => {}));
  await clock.advance(9_999);
  assert.equal(ends.length, 0);
  await clock.advance(1);
  assert.deepEqual(
    ends.map(({ reason }) => reason),
    ['A part of the client did not load.'],
  );
});

test('invalid frames are distinguished, without their content', () => {
  const { got, output, receiver } = reading();
  receiver.frame(new Malformed('not JSON'));
  receiver.frame(new Unknown('te"leport'));
  receiver.frame(pong('1'));
  assert.deepEqual(got, ['1']);
  assert.deepEqual(output, [
    'A frame was skipped: not JSON.',
    'A frame of unknown type "te\\"leport" was ignored.',
  ]);
});

test('frames of one turn leave a socket of `ws` in one write', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  const writes: string[] = [];
  const raw = {
    writableCorked: 0,
    writableLength: 0,
    cork: () => {
      raw.writableCorked += 1;
      writes.push(`hold at ${peer.socket.frames('publish').length}`);
    },
    uncork: () => {
      raw.writableCorked -= 1;
      writes.push(`write at ${peer.socket.frames('publish').length}`);
    },
  };
  Object.assign(peer.socket, { _socket: raw });
  const first = Promise.all([1, 2, 3].map((data) => ps.publish('a.b', { data })));
  await turns();
  const second = ps.publish('a.b', { data: 4 });
  await turns();
  assert.deepEqual(writes, ['hold at 0', 'write at 3', 'hold at 3', 'write at 4']);
  await Promise.all([first, second]);
  await ps.close();
});

test('the first frames of a long turn leave a socket of `ws` before it ends', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  const writes: number[] = [];
  let written = 0;
  const raw = {
    writableCorked: 0,
    get writableLength() {
      return 128 * (peer.socket.frames('publish').length - written);
    },
    cork: () => {
      raw.writableCorked += 1;
    },
    uncork: () => {
      raw.writableCorked -= 1;
      writes.push(raw.writableLength / 128);
      written += raw.writableLength / 128;
    },
  };
  Object.assign(peer.socket, { _socket: raw });
  const published = Promise.all(
    Array.from({ length: 50 }, (_, data) => ps.publish('a.b', { data })),
  );
  assert.deepEqual(writes, [16, 16, 16]);
  await turns();
  assert.deepEqual(writes, [16, 16, 16, 2]);
  await published;
  await ps.close();
});

test('frames leave a socket of `ws` while a test holds `process.nextTick`', async () => {
  const { ps, peer } = virtualClient();
  await ps.connect();
  let held = 0;
  const raw = { cork: () => (held += 1), uncork: () => (held -= 1) };
  Object.assign(peer.socket, { _socket: raw });
  const { nextTick } = process;
  process.nextTick = () => {};
  const published = ps.publish('a.b', { data: 1 });
  process.nextTick = nextTick;
  assert.equal(held, 1);
  await published;
  await turns();
  assert.equal(held, 0);
  await ps.close();
});

test('an error of an open socket ends the connection before its close event', async () => {
  const { ps, peer, clock } = virtualClient();
  await ps.connect();
  const { socket } = peer;
  socket.fail('Invalid WebSocket frame: invalid opcode 7');
  assert.equal(ps.state, 'reconnecting');
  await clock.advance(2_000);
  assert.equal(ps.state, 'connected');
  // The late event of the failed socket does not end the new connection.
  socket.drop();
  assert.equal(ps.state, 'connected');
  await ps.close({ timeout: 0 });
});

test('an error of the server does not quote the token', async () => {
  const token = 'header.payload.signature';
  const { ps, peer, clock } = virtualClient({ getToken: () => `Bearer ${token}` });
  const reported: string[] = [];
  ps.on('error', (error) => void reported.push(error.message, (error as PubSubError).remedy));
  await ps.connect();
  peer.silent.add('publish');
  const published = ps.publish('a', { data: 1 });
  await turns();
  const message = `Bearer ${token} is not "${token}"`;
  const [{ ref } = {}] = peer.socket.frames('publish');
  for (const to of [{ ref }, {}]) {
    peer.socket.receive({ type: 'error', code: 'forbidden', message, remedy: message, ...to });
  }
  await assert.rejects(published, /: Bearer \[token\] is not "\[token\]" \(topic a\)\./);
  peer.silent.add('auth');
  peer.socket.drop();
  await clock.advance(10_000);
  peer.socket.receive({ type: 'auth.error', code: 'forbidden', message, remedy: message });
  await turns();
  assert.deepEqual(new Set(reported), new Set(['Bearer [token] is not "[token]"']));
  await assert.rejects(ps.publish('a', { data: 1 }), /: Bearer \[token\] is not "\[token\]"/);
});

for (const [words, cut] of [
  ['a close reason', undefined],
  ['a close reason that ends within the token', 123],
] as const) {
  test(`${words} does not quote the token`, async () => {
    const token = `${'header'.repeat(20)}.payload.signature`;
    const { ps, peer, clock } = virtualClient({ getToken: () => `Bearer ${token}` });
    await ps.connect();
    peer.silent.add('auth');
    peer.socket.drop(4999, `no Bearer ${token}`.slice(0, cut));
    assert.equal(ps.lastFailure?.reason, 'no Bearer [token]');
    const late = assert.rejects(
      ps.publish('a', { data: 1 }, { timeout: 100 }),
      /no Bearer \[token\]/,
    );
    await clock.advance(100);
    await late;
    await ps.close({ timeout: 0 });
  });
}

test('a denial and the result of a publish do not quote the token', async () => {
  const token = 'header.payload.signature';
  const { ps, peer } = virtualClient({ getToken: () => `Bearer ${token}` });
  await ps.connect();
  for (const type of ['subscribe', 'publish']) peer.silent.add(type);
  const error = { code: 'forbidden', message: `no (${token}), never` };
  const answer = { error: { ...error, remedy: `not ${token}`, field: token } };
  const refused = { name: 'PermissionDenied', message: /no \(\[token\]\), never/ };

  const subscribed = assert.rejects(ps.subscribe('a'), refused);
  await turns();
  const [{ ref } = {}] = peer.socket.frames('subscribe');
  peer.socket.receive({ type: 'subscribed', topics: [], denied: [{ topic: 'a', ...error }], ref });
  await subscribed;

  const published = assert.rejects(ps.publish('a', { data: 1 }), refused);
  const both = ps.publishMany([
    ['a', { data: 1 }],
    ['a', { data: 2 }],
  ]);
  await turns();
  for (const sent of peer.socket.frames('publish')) {
    peer.socket.receive({ type: 'published', ref: sent['ref'], results: [answer, answer] });
  }
  await published;
  for (const one of await both) {
    assert.match(String(one), /no \(\[token\]\), never .*not \[token\]/);
    assert.equal((one as PubSubError).field, '[token]');
  }
  await ps.close({ timeout: 0 });
});

test('the timeout of a subscription that is rejected for now does not quote the token', async () => {
  const token = 'header.payload.signature';
  const { ps, peer, clock } = virtualClient({ getToken: () => `Bearer ${token}` });
  await ps.connect();
  peer.silent.add('subscribe');
  const late = assert.rejects(ps.subscribe('a', { timeout: 300 }), {
    name: 'OperationTimeout',
    message: /rejected the subscription for now: no \[token\] \(internal\)/,
  });
  await turns();
  const [{ ref } = {}] = peer.socket.frames('subscribe');
  const denied = [{ topic: 'a', code: 'internal', message: `no ${token}.` }];
  peer.socket.receive({ type: 'subscribed', topics: [], denied, ref });
  await clock.advance(301);
  await late;
  await ps.close({ timeout: 0 });
});

test('a server may quote the token of the connection after HTTP has renewed it', async () => {
  let calls = 0;
  const getToken = () => {
    calls += 1;
    return `header.payload.signature-${calls}`;
  };
  const fetch = async (): Promise<Response> => new Response('no', { status: 401 });
  const { ps, peer } = virtualClient({ getToken, fetch });
  await ps.connect();
  for (let n = 0; n < 3; n += 1) await assert.rejects(ps.presence('a'));
  assert.ok(calls > 3);
  peer.silent.add('auth');
  peer.socket.drop(4999, 'revoked header.payload.signature-1');
  assert.equal(ps.lastFailure?.reason, 'revoked [token]');
  await ps.close({ timeout: 0 });
});

test('after renewals, a server may quote either of the last two tokens', async () => {
  const tokens = ['header.payload.signature-1', 'header.payload.signature-2'];
  // The callback may return the same token again.
  const given = [...tokens, tokens[1]];
  const { ps, peer, clock } = virtualClient({ getToken: () => given.shift() ?? '' });
  await ps.connect();
  while (given.length) {
    peer.socket.receive({ type: 'auth.expiring', expires_in_ms: 1_000 });
    await clock.advance(1_000);
  }
  assert.deepEqual(
    peer.socket.frames('auth').map(({ token }) => token),
    [...tokens, tokens[1]],
  );
  peer.silent.add('auth');
  peer.socket.drop(4999, `neither ${tokens.join(' nor ')}`);
  assert.equal(ps.lastFailure?.reason, 'neither [token] nor [token]');
  await ps.close({ timeout: 0 });
});

for (const [title, text, hidden] of [
  ['is replaced as a whole, and the rest stays', '(TOKEN), \0 next', '([token]), \0 next'],
  ['is replaced wherever it is', 'TOKEN=TOKEN&a', '[token]=[token]&a'],
  ['is replaced if the text ends within it', 'no TOK', 'no [token]'],
  ['stays if the text goes on after its beginning', 'no TOK…', 'no TOK…'],
  ['does not change a table', `a${' '.repeat(20)}b`, `a${' '.repeat(20)}b`],
] as const) {
  test(`a token that is quoted ${title}`, () => {
    const token = `header'"header'"header.payload`;
    const filled = (words: string) =>
      words.replaceAll('TOKEN', token).replaceAll('TOK', token.slice(0, 16));
    assert.equal(withoutToken(filled(text), `Bearer ${token}`), filled(hidden));
  });
}

test('a token of less than 16 characters may be part of a word', () => {
  assert.equal(withoutToken('the secret-of-tests', 'secret-of-tests'), 'the secret-of-tests');
  assert.equal(withoutToken(`a${' '.repeat(20)}`, ''), `a${' '.repeat(20)}`);
});
