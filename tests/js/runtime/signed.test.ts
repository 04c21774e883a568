import assert from 'node:assert/strict';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inspect } from 'node:util';
import WebSocket, { WebSocketServer } from 'ws';

import {
  ClosedError,
  ConnectionFailed,
  InvalidOption,
  InvalidPayload,
  OperationTimeout,
  type PubSub,
  type SubscribeOptions,
  UsageError,
  type WebSocketConstructor,
} from '../../../js/src/index.js';
import {
  type SignedEvent,
  type SignedMessage,
  SignedTopic,
  type SignedTopicOptions,
} from '../../../js/src/signed/index.js';
import {
  digest,
  keccak256,
  ownerOf,
  sign,
  toData,
  toHex,
  topicAddress,
} from '../../../js/src/soc.js';
import { bounded, Server } from './server.js';
import { turns, virtualClient } from './virtual.js';

const KEY = new Uint8Array(32).fill(1);
const OWNER = ownerOf(KEY);
const ID = keccak256(new TextEncoder().encode('my-topic'));
const NAME = `signed.${toHex(topicAddress(ID, OWNER))}`;
const Socket = WebSocket as unknown as WebSocketConstructor;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

let server: Server;
let open: Server;

before(async () => {
  const folder = mkdtempSync(join(tmpdir(), 'signed-'));
  const rules = join(folder, 'rules.yaml');
  const pattern = '{pattern: "signed.**", require: {authenticated: true}, publish: true}';
  writeFileSync(rules, `rules: [${pattern}]\n`);
  const identities = JSON.stringify({ signed: { user: 'bus', kind: 'admin' } });
  server = await Server.start('--signed', '--listener-identities', identities);
  open = await Server.start('--rules', rules);
});

after(async () => {
  await Promise.all([server.stop(), open.stop()]);
});

async function take(topic: SignedTopic, count: number): Promise<SignedMessage[]> {
  const found: SignedMessage[] = [];
  const read = async () => {
    for await (const message of topic) {
      found.push(message);
      if (found.length === count) break;
    }
  };
  await bounded(read(), 'signed messages');
  return found;
}

test('a log of a topic does not show its key', async () => {
  const writer = new SignedTopic({ url: 'ws://127.0.0.1:9', key: KEY, id: 'my-topic' });
  const shown = inspect(writer, { depth: 9, showHidden: true }) + JSON.stringify(writer);
  assert.ok(!shown.includes('1, 1, 1, 1'), 'as bytes');
  assert.ok(!shown.includes('"0":1,"1":1'), 'as JSON');
  await writer.close();
});

test('with a key, the client gets a payload within the call', async () => {
  const ps = server.client({ token: server.token('--user', 'root', '--admin') });
  const writer = new SignedTopic({ client: ps, key: KEY, id: 'in-order' });
  const published = writer.publish('last');
  await ps.close();
  assert.ok((await published)?.id);
});

test('payloads arrive verified on a socket and in a HIP-56 topic', async () => {
  const ps = server.client({ token: server.token('--user', 'root', '--admin') });
  const socket = new SignedTopic({ url: server.ws, id: ID, owner: OWNER, WebSocket: Socket });
  const inside = new SignedTopic({ client: ps, topic: NAME });
  await Promise.all([socket.connect(), inside.connect()]);
  const one = new SignedTopic({ url: server.ws, id: 'my-topic', key: KEY, WebSocket: Socket });
  const two = new SignedTopic({ client: ps, id: toHex(ID), key: KEY });
  const payloads = [bytes('hello'), new Uint8Array(), Uint8Array.of(255, 0), { n: 1 }, 'text'];
  for (const payload of payloads) assert.equal(await one.publish(payload), undefined);
  const seen = await take(socket, payloads.length);
  for (const payload of payloads) assert.ok((await two.publish(payload))?.id);
  const others = await take(inside, 2 * payloads.length);
  for (const found of [...seen, ...others]) assert.deepEqual(found.owner, OWNER);
  assert.deepEqual(
    seen.map(({ data }) => data),
    ['hello', '', { $base64: '/wA=' }, { n: 1 }, 'text'],
  );
  const hex = others.map(({ payload }) => toHex(payload));
  assert.deepEqual(hex.slice(0, 5), hex.slice(5));
  assert.ok(others[0]?.message?.id);
  await Promise.all([socket, inside, one, two].map((each) => each.close()));
});

test('an external signer signs the digest', async () => {
  const ps = server.client({ token: server.token('--user', 'root', '--admin') });
  const signer = async (): Promise<Uint8Array> => {
    const signature = sign(KEY, ID, bytes('by the wallet')).slice(0, 65);
    signature[64] = (signature[64] ?? 0) - 27;
    return signature;
  };
  const topic = new SignedTopic({ client: ps, id: ID, signer, owner: OWNER });
  assert.ok(await topic.publish('by the wallet'));
  await assert.rejects(topic.publish('something else'), /owner has not signed/);
});

/** A client that keeps the messages to publish. */
function recorder(): { readonly client: PubSub; readonly payloads: unknown[] } {
  const payloads: unknown[] = [];
  const publish = async (_name: string, { data }: { data: { payload: unknown } }) => {
    payloads.push(data.payload);
    return { id: 'msg_1' };
  };
  return { client: { publish } as unknown as PubSub, payloads };
}

test('a signer gets the digest of each message, and a wrong signature is never sent', async () => {
  const { client, payloads } = recorder();
  const asked: string[] = [];
  const signer = async (asks: Uint8Array): Promise<Uint8Array> => {
    asked.push(toHex(asks));
    return sign(KEY, ID, bytes('one')).slice(0, 65);
  };
  const topic = new SignedTopic({ client, id: ID, signer, owner: OWNER });
  await topic.publish('one');
  await assert.rejects(topic.publish('two'), InvalidPayload);
  assert.deepEqual(
    asked,
    ['one', 'two'].map((text) => toHex(digest(ID, bytes(text)))),
  );
  assert.deepEqual(payloads, ['one']);
});

test('messages go out in the order of the calls, whichever signature comes first', async () => {
  const { client, payloads } = recorder();
  const waiting: (() => void)[] = [];
  const texts = ['one', 'refused', 'two', 'three'];
  const signer = (asks: Uint8Array): Promise<Uint8Array> =>
    new Promise((resolve, reject) => {
      const text = texts.find((each) => toHex(digest(ID, bytes(each))) === toHex(asks)) ?? '';
      const signature = sign(KEY, ID, bytes(text)).slice(0, 65);
      waiting.push(() => (text === 'refused' ? reject(new Error(text)) : resolve(signature)));
    });
  const topic = new SignedTopic({ client, id: ID, signer, owner: OWNER });
  const calls = texts.map((text) => topic.publish(text));
  const results = Promise.allSettled(calls);
  for (const answer of waiting.reverse()) {
    answer();
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.deepEqual(
    (await results).map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled', 'fulfilled'],
  );
  assert.deepEqual(payloads, ['one', 'two', 'three']);
});

test('forged messages are shown and not hidden', async (context) => {
  const ps = open.client({ token: open.token('--user', 'alice') });
  const good = toData(sign(KEY, ID, bytes('good')), ID, OWNER);
  const forged: [unknown, string][] = [
    [{ ...good, payload: 'bad' }, 'signature'],
    [{ ...good, owner: '00'.repeat(20) }, 'owner'],
    [{ ...good, id: '00'.repeat(32) }, 'owner'],
    ['text', 'data'],
  ];
  const every = new SignedTopic({ client: ps, id: ID, owner: OWNER });
  const goodOnes = new SignedTopic({ client: ps, id: ID, owner: OWNER });
  await Promise.all([every.connect(), goodOnes.connect()]);
  for (const [data] of [...forged, [good]])
    await ps.publish(NAME, { type: 'message', data: data as object });
  const seen: SignedEvent[] = [];
  const read = async () => {
    for await (const event of every.events()) {
      seen.push(event);
      if (event.kind === 'message') break;
    }
  };
  await bounded(read(), 'signed messages');
  assert.deepEqual(
    seen.map((event) => (event.kind === 'forged' ? event.error.field : event.kind)),
    [...forged.map(([, field]) => field), 'message'],
  );
  const warn = context.mock.method(console, 'warn', () => {});
  const [message] = await take(goodOnes, 1);
  assert.equal(message?.data, 'good');
  assert.equal(warn.mock.callCount(), 1);
  assert.deepEqual([every.forged, goodOnes.forged], [4, 4]);
});

for (const handled of [false, true]) {
  const title = handled ? 'is left to a listener of gaps' : 'is logged by the client';
  test(`the first gap of an iteration ${title}`, async () => {
    const warnings: string[] = [];
    const logger = { warn: (text: string) => void warnings.push(text), error: () => {} };
    const { ps, peer } = virtualClient({ logger, receiveQueue: { messages: 10 } });
    const gaps: (number | undefined)[] = [];
    if (handled) ps.on('gap', ({ missed }) => gaps.push(missed));
    const topic = new SignedTopic({ client: ps, id: ID, owner: OWNER });
    await topic.connect();
    const data = { ...toData(sign(KEY, ID, bytes('good')), ID, OWNER) };
    for (let n = 0; n < 30; n += 1) {
      peer.socket.receive(peer.message(NAME, data));
      await turns(1);
    }
    await take(topic, 10);
    await topic.close();
    await ps.close();
    assert.equal(warnings.length, handled ? 0 : 1);
    assert.deepEqual(gaps, handled ? [20] : []);
  });
}

test('a Bee node receives the parameters in both spellings, and its forged frames are rejected', async () => {
  const bee = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  const frame = sign(KEY, ID, bytes('good'));
  const changed = frame.slice();
  changed[changed.length - 1] = 33;
  const asked = new Promise<string>((resolve) => {
    bee.on('connection', (socket, request) => {
      resolve(request.url ?? '');
      for (const each of [changed, frame.slice(1), 'text', frame]) socket.send(each);
    });
  });
  await new Promise((resolve) => bee.on('listening', resolve));
  const { port } = bee.address() as { port: number };
  const peer = '/ip4/10.0.0.1/tcp/1634';
  const url = `ws://127.0.0.1:${port}/v1/pubsub/`;
  const reader = new SignedTopic({ url, id: ID, owner: OWNER, peer, WebSocket: Socket });
  assert.equal((await take(reader, 1))[0]?.data, 'good');
  assert.equal(reader.forged, 3);
  const path = decodeURIComponent(await asked);
  assert.ok(path.startsWith(`/v1/pubsub/${NAME.slice(7)}?`), path);
  for (const spelling of ['', 'swarm-pubsub-']) assert.ok(path.includes(`${spelling}peer=${peer}`));
  assert.ok(!path.includes('gsoc'));
  const late = take(reader, 1);
  for (const socket of bee.clients) socket.close(1013, 'unavailable');
  await assert.rejects(late, /has ended: 1013 unavailable/);
  await reader.close();
  bee.close();
});

/** A WebSocket whose other end is the test. */
class FakeSocket extends EventTarget {
  static last: FakeSocket;
  static opens = true;
  readonly closed: number[] = [];
  binaryType = '';
  bufferedAmount = 0;

  constructor() {
    super();
    FakeSocket.last = this;
    if (FakeSocket.opens) queueMicrotask(() => this.dispatchEvent(new Event('open')));
  }

  send(): void {}

  close(code: number): void {
    this.closed.push(code);
  }

  end(): void {
    this.dispatchEvent(Object.assign(new Event('close'), { code: 1000, reason: '' }));
  }

  fail(message: string): void {
    this.dispatchEvent(Object.assign(new Event('error'), { message }));
  }

  /** Bytes that are not a frame, so that verification is fast. */
  receive(count: number): void {
    for (let n = 0; n < count; n += 1)
      this.dispatchEvent(new MessageEvent('message', { data: new ArrayBuffer(3) }));
  }
}

test('a reader with 1,000 waiting messages loses its socket, and receives the error after them', async () => {
  const Fake = FakeSocket as unknown as WebSocketConstructor;
  const topic = new SignedTopic({ url: 'ws://bee', id: ID, owner: OWNER, WebSocket: Fake });
  await topic.connect();
  const socket = FakeSocket.last;
  socket.receive(1_000);
  assert.deepEqual(socket.closed, []);
  socket.receive(1);
  assert.deepEqual(socket.closed, [4000]);
  const read = async (): Promise<void> => {
    for await (const event of topic.events()) assert.equal(event.kind, 'forged');
  };
  await assert.rejects(read(), /1,000 messages wait for the program/);
  assert.equal(topic.forged, 1_000);
});

test('a topic that is opened again ignores its earlier socket', async () => {
  const Fake = FakeSocket as unknown as WebSocketConstructor;
  const topic = new SignedTopic({ url: 'ws://bee', id: ID, owner: OWNER, WebSocket: Fake });
  await topic.connect();
  const earlier = FakeSocket.last;
  await topic.close();
  await topic.connect();
  earlier.receive(1);
  earlier.end();
  FakeSocket.last.receive(2);
  const events = topic.events();
  for (let n = 0; n < 2; n += 1) assert.equal((await events.next()).value?.kind, 'forged');
  const third = events.next();
  await topic.close();
  assert.equal((await third).done, true);
});

test('connect opens another socket after one has ended, and only then', async () => {
  const Fake = FakeSocket as unknown as WebSocketConstructor;
  const topic = new SignedTopic({ url: 'ws://bee', id: ID, owner: OWNER, WebSocket: Fake });
  await topic.connect();
  const first = FakeSocket.last;
  await topic.connect();
  assert.equal(FakeSocket.last, first);
  first.end();
  await assert.rejects(topic.events().next(), ConnectionFailed);
  await topic.connect();
  assert.notEqual(FakeSocket.last, first);
  FakeSocket.last.receive(1);
  assert.equal((await topic.events().next()).value?.kind, 'forged');
  await topic.close();
});

test('a failure of a closed socket does not open a third one', async () => {
  const Fake = FakeSocket as unknown as WebSocketConstructor;
  const topic = new SignedTopic({ url: 'ws://bee', id: ID, owner: OWNER, WebSocket: Fake });
  FakeSocket.opens = false;
  const failing = assert.rejects(topic.connect(), ClosedError);
  const first = FakeSocket.last;
  await topic.close();
  FakeSocket.opens = true;
  const opening = topic.connect();
  const second = FakeSocket.last;
  first.end();
  await failing;
  await opening;
  await topic.connect();
  assert.equal(FakeSocket.last, second);
  await topic.close();
});

test('close ends a subscription that the server has not granted yet', async () => {
  const signals: (AbortSignal | undefined)[] = [];
  const subscribe = (_name: string, { signal }: SubscribeOptions) =>
    new Promise<never>((_resolve, reject) => {
      signals.push(signal);
      signal?.addEventListener('abort', () => reject(signal.reason));
    });
  const client = { subscribe } as unknown as PubSub;
  const topic = new SignedTopic({ client, id: ID, owner: OWNER });
  const opening = assert.rejects(topic.connect(), ClosedError);
  const reading = assert.rejects(topic.events().next(), ClosedError);
  await topic.close();
  await Promise.all([opening, reading]);
  assert.deepEqual(
    signals.map((signal) => signal?.aborted),
    [true],
  );
});

test('an iteration does not open a topic again that was closed while it opened', async () => {
  let grant = (): void => {};
  let count = 0;
  const subscribe = () => {
    count += 1;
    return new Promise<unknown>((resolve) => {
      grant = () => resolve({});
    });
  };
  const client = { subscribe } as unknown as PubSub;
  const topic = new SignedTopic({ client, id: ID, owner: OWNER });
  const closed = topic.connect().then(() => topic.close());
  const reading = assert.rejects(topic.events().next(), ClosedError);
  grant();
  await Promise.all([closed, reading]);
  assert.equal(count, 1);
});

test('an iteration continues where an earlier one stopped', async () => {
  const ps = server.client({ token: server.token('--user', 'root', '--admin') });
  const topic = new SignedTopic({ client: ps, id: 'twice', owner: OWNER });
  await topic.connect();
  const writer = new SignedTopic({ client: ps, id: 'twice', key: KEY });
  for (const payload of ['one', 'two']) await writer.publish(payload);
  for (const payload of ['one', 'two']) {
    assert.deepEqual(
      (await take(topic, 1)).map(({ data }) => data),
      [payload],
    );
  }
  await topic.close();
  await topic.connect();
  await topic.close();
});

test('each of two waiting iterations gets a message, and both end', async () => {
  const url = server.ws;
  const reader = new SignedTopic({ url, owner: OWNER, id: 'two-readers', WebSocket: Socket });
  const writer = new SignedTopic({ url, key: KEY, id: 'two-readers', WebSocket: Socket });
  const iterations = [reader.events(), reader.events()];
  await reader.connect();
  const waiting = Promise.all(iterations.map((events) => events.next()));
  await writer.publish(bytes('one'));
  await writer.publish(bytes('two'));
  const found = await bounded(waiting, 'a message for each');
  assert.deepEqual(found.map(({ value }) => (value as SignedMessage).data).sort(), ['one', 'two']);
  const ends = Promise.all(iterations.map((events) => events.next()));
  await turns();
  await Promise.all([reader.close(), writer.close()]);
  for (const { done } of await bounded(ends, 'the end of both')) assert.ok(done);
});

test('a publisher with two iterations has one subscription', async () => {
  const ps = server.client({ token: server.token('--user', 'root', '--admin') });
  const topic = new SignedTopic({ client: ps, id: 'twice', key: KEY });
  const readings = [topic.events().next(), topic.events().next()];
  await topic.publish('one');
  await topic.publish('two');
  const events = await bounded(Promise.all(readings), 'two events');
  assert.deepEqual(
    events.map(({ value }) => value?.kind === 'message' && value.data),
    ['one', 'two'],
  );
  await topic.close();
});

test('a socket that does not open is given up after ten seconds', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  FakeSocket.opens = false;
  try {
    const Fake = FakeSocket as unknown as WebSocketConstructor;
    const topic = new SignedTopic({ url: 'ws://bee', id: ID, owner: OWNER, WebSocket: Fake });
    const opening = assert.rejects(topic.connect(), OperationTimeout);
    context.mock.timers.tick(10_000);
    await opening;
    assert.equal(FakeSocket.last.closed.length, 1);
  } finally {
    FakeSocket.opens = true;
  }
});

test('publish waits while the socket holds more than a megabyte', async (context) => {
  const Fake = FakeSocket as unknown as WebSocketConstructor;
  const topic = new SignedTopic({ url: 'ws://bee', id: ID, key: KEY, WebSocket: Fake });
  await topic.publish('one');
  context.mock.timers.enable({ apis: ['setTimeout'] });
  FakeSocket.last.bufferedAmount = 1_048_577;
  let done = false;
  const publishing = topic.publish('two').then(() => {
    done = true;
  });
  for (let n = 0; n < 3; n += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    context.mock.timers.tick(20);
  }
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(done, false);
  FakeSocket.last.bufferedAmount = 0;
  context.mock.timers.tick(20);
  await publishing;
  FakeSocket.last.bufferedAmount = 1_048_577;
  const lost = topic.publish('three');
  await new Promise((resolve) => setImmediate(resolve));
  FakeSocket.last.end();
  context.mock.timers.tick(20);
  await assert.rejects(lost, ConnectionFailed);
});

test('a publisher that never reads does not collect what its socket receives', async () => {
  const Fake = FakeSocket as unknown as WebSocketConstructor;
  const topic = new SignedTopic({ url: 'ws://bee', id: ID, key: KEY, WebSocket: Fake });
  await topic.publish('one');
  FakeSocket.last.receive(1_001);
  assert.deepEqual(FakeSocket.last.closed, []);
  await topic.close();
});

test('a refused socket is reported', async () => {
  const topic = new SignedTopic({ url: open.ws, id: ID, owner: OWNER, WebSocket: Socket });
  await assert.rejects(topic.connect(), {
    name: 'ConnectionFailed',
    message: 'The signed topic cannot be opened: Unexpected server response: 404.',
    cause: new Error('Unexpected server response: 404'),
  });
  await topic.close();
});

test('a socket that fails without a close event is reported at once', async () => {
  FakeSocket.opens = false;
  try {
    const Fake = FakeSocket as unknown as WebSocketConstructor;
    const topic = new SignedTopic({ url: 'ws://bee', id: ID, owner: OWNER, WebSocket: Fake });
    const opening = topic.connect();
    FakeSocket.last.fail('The network is down.');
    await assert.rejects(opening, {
      message: 'The signed topic cannot be opened: The network is down.',
    });
    FakeSocket.opens = true;
    await topic.connect();
    await topic.close();
  } finally {
    FakeSocket.opens = true;
  }
});

test('an unknown option is named', () => {
  const options = { url: 'ws://127.0.0.1:1', id: ID, singer: async () => new Uint8Array(65) };
  assert.throws(() => new SignedTopic(options), /There is no option `singer`\./);
});

test('a reader cannot publish, and a payload that cannot be signed is rejected', async () => {
  const url = 'ws://127.0.0.1:1';
  await assert.rejects(new SignedTopic({ url, id: ID, owner: OWNER }).publish('x'), UsageError);
  const topic = new SignedTopic({ url, id: ID, key: KEY });
  await assert.rejects(topic.publish('x'.repeat(4097)), InvalidPayload);
  for (const half of ['\ud800', ['\udfff'], { n: ['a\ud800'] }, { '\ud800': 1 }, ['\\\udbff']])
    await assert.rejects(topic.publish(half), InvalidPayload);
  await assert.rejects(topic.publish(undefined), InvalidPayload);
  for (const value of [Number.NaN, new Date(0), new Map(), 2 ** 64])
    await assert.rejects(
      topic.publish({ n: value }),
      (error) => error instanceof InvalidPayload && error.field === 'payload.n',
    );
});

test('hex digits where bytes belong are named', () => {
  const wrong = toHex(OWNER) as unknown as Uint8Array;
  assert.throws(
    () => new SignedTopic({ url: 'ws://127.0.0.1:1', id: ID, owner: wrong }),
    /`owner` is of type string, not bytes\. Pass 20 bytes; `fromHex` reads hex digits\./,
  );
});

test('the error names an invalid option', () => {
  const url = 'ws://127.0.0.1:1';
  const signer = async () => new Uint8Array(65);
  const cases: [SignedTopicOptions, string][] = [
    [{}, 'url'],
    [{ client: 5 as never, id: ID, key: KEY }, 'client'],
    [{ client: null as never, id: ID, key: KEY }, 'client'],
    [{ client: { subscribe: signer } as never, id: ID, key: KEY }, 'client'],
    [{ url, id: ID }, 'topic'],
    [{ url, id: ID, key: KEY, signer }, 'signer'],
    [{ url, id: ID, signer }, 'owner'],
    [{ url, id: ID, key: KEY, owner: new Uint8Array(20) }, 'owner'],
    [{ url, id: ID, key: KEY, topic: new Uint8Array(32) }, 'topic'],
    [{ url, id: new Uint8Array(31), key: KEY }, 'id'],
    [{ url, id: '\ud800', key: KEY }, 'id'],
    [{ url, id: 5 as unknown as string, key: KEY }, 'id'],
    [{ url, topic: NAME }, 'id'],
    [{ url, topic: 'my-topic', id: ID }, 'topic'],
    [{ url: 'http://127.0.0.1', id: ID, owner: OWNER }, 'url'],
  ];
  for (const [options, field] of cases)
    assert.throws(
      () => new SignedTopic(options),
      (error) => error instanceof InvalidOption && error.field === field,
      field,
    );
});
