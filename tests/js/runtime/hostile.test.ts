/** Invalid input from a server: the client never throws because of it, and reads the next frame. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { type Message, PubSub, type PubSubError } from '../../../js/src/index.js';
import { fc } from '../properties.js';
import { take } from './server.js';
import { FakeSocket, turns, virtualClient } from './virtual.js';

const thrown: unknown[] = [];
const keep = (error: unknown): void => void thrown.push(error);

before(() => {
  process.on('uncaughtException', keep);
  process.on('unhandledRejection', keep);
});
after(() => {
  process.off('uncaughtException', keep);
  process.off('unhandledRejection', keep);
});

const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
const bytes = (...numbers: number[]): ArrayBuffer => new Uint8Array(numbers).buffer;

/** Invalid frames, each with a part of the reported error. */
const REFUSED: readonly [string, unknown, RegExp][] = [
  ['nothing', '', /not JSON/],
  ['no JSON', '{"type":', /not JSON/],
  ['a number', '1', /not a JSON object/],
  ['null', 'null', /not a JSON object/],
  ['an array', '[{"type":"pong"}]', /not a JSON object/],
  ['a string', '"pong"', /not a JSON object/],
  ['huge nesting', `{"type":"pong","x":${deep}}`, /not JSON|nested/],
  ['bytes that are no UTF-8', bytes(0xff, 0xfe, 0x00), /not UTF-8/],
  ['no bytes', bytes(), /not JSON/],
  ['a message of a wrong type', '{"type":"message","message":7}', /./],
  ['a message without a topic', '{"type":"message","message":{"id":"x"}}', /./],
];

/** Frames that have no effect, and are not errors. */
const IGNORED: readonly [string, string][] = [
  ['the name of a function of every object', '{"type":"constructor"}'],
  ['`__proto__` as a type', '{"type":"__proto__"}'],
  ['`toString` as a type', '{"type":"toString"}'],
  ['a type of a later version', '{"type":"later.thing","data":{"a":1}}'],
  ['a prototype', '{"type":"pong","__proto__":{"polluted":true},"constructor":{"prototype":1}}'],
];

/** A connected client with a subscription, and the errors that it reports. */
async function watching() {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  const errors: Error[] = [];
  ps.on('error', (error) => errors.push(error));
  const sub = await ps.subscribe('a.**');
  return { ps, peer, clock, errors, sub };
}

test('an error of the server is reported with its remedy', async () => {
  const { ps, peer, errors } = await watching();
  const problem = { code: 'odd', message: 'words', remedy: 'Do this.', retry_after_ms: 500 };
  peer.socket.receive({ type: 'error', ...problem });
  await turns();
  const [error] = errors as PubSubError[];
  assert.deepEqual([error?.code, error?.remedy, error?.retryAfter], ['odd', 'Do this.', 500]);
  await ps.close();
});

for (const [what, data, output] of REFUSED) {
  test(`${what} is reported, and the next message arrives`, async () => {
    const { ps, peer, errors, sub } = await watching();
    peer.socket.receive(data);
    peer.socket.receive(peer.message('a.b', 'after'));
    assert.equal((await take(sub, 1))[0]?.data, 'after');
    await turns();
    assert.equal(errors.length, 1);
    assert.equal(Reflect.get(errors[0] ?? {}, 'code'), 'invalid_frame');
    assert.match(errors[0]?.message ?? '', output);
    assert.equal(peer.sockets.length, 1);
    assert.deepEqual(thrown, []);
    await ps.close();
  });
}

for (const [what, data] of IGNORED) {
  test(`${what} is ignored, and the next message arrives`, async () => {
    const { ps, peer, errors, sub } = await watching();
    peer.socket.receive(data);
    peer.socket.receive(peer.message('a.b', 'after'));
    assert.equal((await take(sub, 1))[0]?.data, 'after');
    await turns();
    assert.deepEqual(errors, []);
    assert.equal(Reflect.get({}, 'polluted'), undefined);
    assert.deepEqual(thrown, []);
    await ps.close();
  });
}

test('payloads arrive unchanged: own keys, rounded numbers, whole texts', async () => {
  const { ps, peer, sub } = await watching();
  const payloads = [
    '{"__proto__":{"x":1},"constructor":2,"hasOwnProperty":3}',
    '[9007199254740993, NaN]',
    '"\\ud800 and \\udc00, \\ud83d\\ude00"',
  ];
  for (const payload of payloads) {
    const frame = JSON.stringify(peer.message('a.b', 'HERE'));
    peer.socket.receive(frame.replace('"HERE"', payload));
  }
  peer.socket.receive(peer.message('a.b', 'after'));
  const got: Message[] = [];
  for await (const message of sub) {
    got.push(message);
    if (message.data === 'after') break;
  }
  const [first] = got;
  assert.deepEqual(Object.keys(first?.data), ['__proto__', 'constructor', 'hasOwnProperty']);
  assert.equal(Reflect.get({}, 'x'), undefined);
  assert.deepEqual(
    got.slice(1).map(({ data }) => data),
    [[9007199254740992, null], '\ufffd and \ufffd, 😀', 'after'],
  );
  assert.deepEqual(thrown, []);
  await ps.close();
});

test('a frame over the limit ends the connection with a reason, and the client reconnects', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket', maxFrame: 2_000 });
  const states = ps.states();
  await ps.connect();
  peer.socket.receive(`{"type":"pong","x":"${'x'.repeat(2_000)}"}`);
  await clock.advance(2_000);
  const changes = await take(states, 6);
  assert.equal(changes[3]?.code, 1009);
  assert.match(changes[3]?.reason ?? '', /more than 2000 bytes/);
  assert.equal(ps.state, 'connected');
  await ps.close();
});

test('with a plain HIP-56 peer, messages arrive and publishes are settled', async () => {
  const { ps, peer } = virtualClient({
    transport: 'websocket',
    fetch: () => Promise.reject(new TypeError('no HTTP here')),
  });
  peer.hello = () => ({});
  const sub = await ps.subscribe('a.*');
  assert.equal(peer.socket.frames('subscribe')[0]?.['ref'], undefined);
  peer.socket.receive(peer.message('a.b', 1));
  peer.socket.receive(peer.message('a.b', 1));
  peer.socket.receive({ type: 'constructor' });
  peer.socket.receive(peer.message('a.c', 2));
  assert.deepEqual(
    (await take(sub, 3)).map(({ data, seq }) => [data, seq]),
    [
      [1, undefined],
      [1, undefined],
      [2, undefined],
    ],
  );
  const done = await ps.publish('a.b', { data: 1 });
  assert.equal(done.seq, undefined);
  assert.equal(peer.socket.frames('publish').length, 1);
  await ps.close();
});

test('a publish to a peer without acknowledgements uses HTTP if available', async () => {
  const asked: string[] = [];
  const { ps, peer } = virtualClient({
    transport: 'websocket',
    fetch: async (url, init) => {
      asked.push(`${init?.method} ${new URL(String(url)).pathname}`);
      const isPublish = init?.method === 'POST';
      return new Response(
        isPublish
          ? '{"id":"msg_9","timestamp":5}'
          : '{"topic":"a.b","messages":[],"has_more":false}',
      );
    },
  });
  peer.hello = () => ({});
  await ps.connect();
  const done = await ps.publish('a.b', { data: 1 });
  assert.deepEqual([done.id, done.timestamp], ['msg_9', 5]);
  await ps.publish('a.b', { data: 2 });
  assert.equal(asked.filter((one) => one.startsWith('GET')).length, 1, 'it is looked for once');
  assert.equal(peer.socket.frames('publish').length, 0);
  await ps.publish('a.b', { data: 3 }, { via: 'socket' });
  assert.equal(peer.socket.frames('publish').length, 1);
  await ps.close();
});

const KINDS = [
  'auth.ok',
  'auth.error',
  'subscribed',
  'unsubscribed',
  'message',
  'published',
  'presence.snapshot',
  'pong',
  'constructor',
  '__proto__',
];
const FIELDS = ['topic', 'topics', 'message', 'messages', 'members', 'ref', 'seq', 'positions'];

/** Frames of known types with random fields, other JSON, random text, random bytes. */
const anything = fc.oneof(
  fc
    .record({
      type: fc.constantFrom(...KINDS),
      fields: fc.dictionary(
        fc.constantFrom(...FIELDS, '__proto__', 'data', 'code'),
        fc.jsonValue(),
      ),
    })
    .map(({ type, fields }) => JSON.stringify({ ...fields, type })),
  fc.json(),
  fc.string({ unit: 'binary' }),
  fc.uint8Array().map((array) => array.slice().buffer),
);

test('the client survives any frames, and reads the next ones on a connection', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anything, { maxLength: 8 }), async (frames) => {
      const { ps, peer, clock, sub } = await watching();
      for (const frame of frames) peer.socket.receive(frame);
      await clock.advance(10_000);
      assert.deepEqual(thrown, []);
      assert.ok(ps instanceof PubSub && peer.socket instanceof FakeSocket);
      // An `auth.error` may end the client. Nothing else may.
      if (ps.state !== 'failed') {
        assert.equal(ps.state, 'connected');
        peer.socket.receive(peer.message('a.last', 'after'));
        let last: unknown;
        while (last !== 'after') last = (await take(sub, 1))[0]?.data;
      }
      await ps.close({ timeout: 0 });
    }),
    { numRuns: 150 },
  );
});
