import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fromAISDK } from '../../../js/src/ai-sdk/index.js';
import { fromCode } from '../../../js/src/errors.js';
import type { PubSub, PubSubError } from '../../../js/src/index.js';
import { fromAnthropic, fromOpenAI } from '../../../js/src/models/index.js';
import type { Driver } from '../../../js/src/runtime/driver.js';
import {
  type Piece,
  partialJson,
  readStream,
  StreamCancelled,
  type StreamEvent,
  type StreamReader,
  type StreamWriter,
  writeStream,
} from '../../../js/src/streams/index.js';
import { refusal } from '../../../js/src/streams/sources.js';
import { MemoryServer } from '../../../js/src/testing/index.js';
import { load } from '../files.js';

const TOPIC = 'chat.session.abc';
const TEXT = 'Hello wörld \u{1f468}\u200d\u{1f469}\u200d\u{1f467} 漢字 é '.repeat(12);

/** Pieces that split surrogate pairs. */
const words = (text: string): string[] => text.match(/.{1,3}/gs) ?? [];

/** Pieces of whole characters. */
const whole = (text: string): string[] => text.match(/.{1,3}/gsu) ?? [];

async function* model(server: MemoryServer, text: string, pause = 1000 / 150) {
  for (const word of words(text)) {
    await new Promise<void>((resolve) => server.clock.callLater(pause, resolve));
    yield word;
  }
}

/** The result of a promise while time advances. */
async function within<T>(server: MemoryServer, promise: Promise<T>, limit = 60_000): Promise<T> {
  let isSettled = false;
  const settled = promise.finally(() => {
    isSettled = true;
  });
  settled.catch(() => {});
  for (let passed = 0; !isSettled && passed < limit; passed += 20) await server.clock.advance(20);
  assert.ok(isSettled, 'it did not happen in time');
  return settled;
}

async function collect(reader: StreamReader): Promise<StreamEvent[]> {
  const events: StreamEvent[] = [];
  for await (const event of reader) events.push(event);
  return events;
}

/** The text that a program shows after these events. */
function amount(events: readonly StreamEvent[]): string {
  let text = '';
  for (const event of events) {
    if (event.kind === 'delta') text += event.text;
    else if ('text' in event) text = event.text;
  }
  return text;
}

const kindsOf = (events: readonly StreamEvent[]): string[] => events.map(({ kind }) => kind);

const started = (): Promise<MemoryServer> => new MemoryServer().start();

test('streams do not ask a program to handle the gaps of their own subscriptions', async () => {
  const server = await started();
  const warnings: string[] = [];
  const logger = { warn: (output: string) => warnings.push(output), error: () => {} };
  const reader = readStream(server.client({ logger }), TOPIC);
  const writer = await writeStream(server.client({ logger }), TOPIC);
  const piping = writer.pipe(model(server, TEXT));
  await server.clock.advance(500);
  server.forgetHistory(undefined, { positions: true });
  server.cut();
  await within(server, piping);
  assert.equal((await within(server, reader.final())).text, TEXT);
  assert.deepEqual(
    warnings.filter((output) => output.includes('onGap')),
    [],
  );
  await server.stop();
});

test('options of streams that have a wrong type are refused', async () => {
  const server = await started();
  const ps = server.client();
  const refused = (field: string) => (error: PubSubError) =>
    error.code === 'invalid_option' && error.field === field;
  for (const wrong of [{ allow: 'all' }, { onSteer: 5 }, { window: Number.NaN }, { window: -1 }]) {
    const [field = ''] = Object.keys(wrong);
    await assert.rejects(Reflect.apply(writeStream, null, [ps, TOPIC, wrong]), refused(field));
  }
  assert.throws(
    () => Reflect.apply(readStream, null, [ps, TOPIC, { onCancel: 'x' }]),
    refused('onCancel'),
  );
  await server.stop();
});

test('a client that is closed writes no stream', async () => {
  const server = await started();
  const ps = server.client();
  await ps.close();
  for (const listen of [true, false]) {
    await assert.rejects(writeStream(ps, TOPIC, { listen }), { code: 'closed' });
  }
  await server.stop();
});

test('a reader sees the answer grow and ends with all of it', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  const events = collect(reader);
  await server.clock.advance(1);
  const writer = await writeStream(server.client(), TOPIC, { id: 'r1', meta: { model: 'm' } });
  await within(server, writer.pipe(model(server, TEXT)));
  const seen = await within(server, events);
  assert.equal(seen[0]?.kind, 'start');
  assert.deepEqual(reader.meta, { model: 'm' });
  assert.ok(seen.filter(({ kind }) => kind === 'delta').length > 5);
  assert.equal(amount(seen.slice(0, -1)), TEXT);
  const { kind, text, count, reason, stale } = await reader.final();
  assert.deepEqual(
    { kind, text, count, reason, stale },
    { kind: 'done', text: TEXT, count: writer.stats.tokens, reason: 'stop', stale: false },
  );
  await server.stop();
});

test('a late reader starts with the text so far', async () => {
  const server = await started();
  const long = TEXT.repeat(8);
  const writer = await writeStream(server.client(), TOPIC);
  const piping = writer.pipe(model(server, long));
  await server.clock.advance(5_000);
  const reader = readStream(server.client(), TOPIC);
  await server.clock.advance(200);
  assert.ok(long.startsWith(reader.text) && reader.text.length > 1_500, `${reader.text.length}`);
  const events = collect(reader);
  await within(server, piping);
  assert.equal(amount((await within(server, events)).slice(0, -1)), long);
  const after = readStream(server.client(), TOPIC);
  assert.equal((await within(server, after.final())).text, long);
  await server.stop();
});

test('a slow program gets deltas joined', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  await server.clock.advance(1);
  const writer = await writeStream(server.client(), TOPIC);
  await within(server, writer.pipe(model(server, TEXT)));
  const events = await within(server, collect(reader));
  assert.deepEqual(kindsOf(events), ['start', 'delta', 'done']);
  assert.equal(amount(events.slice(0, -1)), TEXT);
  await server.stop();
});

test('a snapshot replaces the events that a slow program has not read', async () => {
  const server = await started();
  const ps = server.client();
  const reader = readStream(ps, TOPIC, { id: 'r1' });
  const old = await writeStream(ps, TOPIC, { id: 'r1', listen: false });
  await old.write('an attempt that failed');
  await server.clock.advance(1_000);
  const writer = await writeStream(ps, TOPIC, { id: 'r1', epoch: 1 });
  await writer.write('all of it');
  await server.clock.advance(1_000);
  await within(server, writer.complete());
  const events = await within(server, collect(reader));
  assert.deepEqual(kindsOf(events), ['snapshot', 'start', 'delta', 'done']);
  assert.equal(amount(events.slice(0, -1)), 'all of it');
  await server.stop();
});

test('a reader that finds the end in the history leaves its topic', async () => {
  const server = await started();
  const ps = server.client();
  const data = { stream: 'r1', epoch: 0, writer: 'w' };
  const reader = readStream(ps, TOPIC, { id: 'r1' });
  await server.clock.advance(1_000);
  await server.publish(TOPIC, { type: 'stream.start', data });
  const { history } = ps;
  ps.history = async function* (...given: Parameters<typeof history>) {
    for await (const message of history.apply(ps, given))
      yield { ...message, type: 'message.complete', data: { ...data, count: 0, text: '' } };
  } as typeof history;
  // A silent stream makes the reader request the history.
  await server.clock.advance(11_000);
  assert.equal((await reader.final()).kind, 'done');
  const { _driver: driver } = ps as unknown as { readonly _driver: Driver };
  assert.equal(driver._background?.deliveries.inboxes.size, 0);
  await server.stop();
});

test('a reader that loses its connection repeatedly ends with the same text', async () => {
  const server = await started();
  const long = TEXT.repeat(8);
  const events = collect(readStream(server.client(), TOPIC));
  const writer = await writeStream(server.client(), TOPIC);
  const piping = writer.pipe(model(server, long));
  for (let n = 0; n < 6; n += 1) {
    await server.clock.advance(1_300);
    server.cut();
  }
  await within(server, piping);
  assert.equal(amount((await within(server, events)).slice(0, -1)), long);
  await server.stop();
});

test('a reader cancels and steers, and all end with the same text', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  const other = readStream(server.client(), TOPIC);
  const received: unknown[] = [];
  let isClosed = false;
  const writer = await writeStream(server.client(), TOPIC, {
    onSteer: (data) => received.push(data),
  });
  async function* endless() {
    try {
      for (let n = 0; ; n += 1) {
        await new Promise<void>((resolve) => server.clock.callLater(10, resolve));
        yield `${n} `;
      }
    } finally {
      isClosed = true;
    }
  }
  const piping = assert.rejects(writer.pipe(endless()), { code: 'cancelled' });
  await server.clock.advance(2_000);
  await within(server, reader.steer({ say: 'shorter' }));
  await within(server, reader.cancel('enough'));
  await within(server, piping);
  assert.deepEqual(received, [{ say: 'shorter' }]);
  assert.ok(writer.signal.aborted && isClosed);
  const first = await within(server, reader.final());
  assert.deepEqual(await within(server, other.final()), first);
  assert.equal(first.kind, 'aborted');
  assert.equal(first.reason, 'enough');
  assert.match(first.text, /150 /);
  await server.stop();
});

test('a reader that cannot begin leaves the topic, and says why', async () => {
  const server = await started();
  // Not a string: the reader fails when the server has granted its subscription.
  const reader = readStream(server.client(), TOPIC, { id: Symbol('id') as unknown as string });
  await assert.rejects(within(server, collect(reader)), TypeError);
  await assert.rejects(within(server, reader.final()), TypeError);
  await server.clock.advance(1_000);
  const types = server.received.map(({ type }) => type);
  assert.deepEqual(
    types.filter((type) => String(type).endsWith('subscribe')),
    ['subscribe', 'unsubscribe'],
  );
  await server.stop();
});

test('a program ends its stream as a reader does, unless `allow` rejects the user', async () => {
  const server = await started();
  const writer = await writeStream(server.client(), TOPIC, { allow: (by) => by === 'alice' });
  await within(server, writer.cancel('enough', 'mallory'));
  await writer.write('ok');
  await within(server, writer.cancel('enough', 'alice'));
  await assert.rejects(writer.write('more'), { code: 'cancelled' });
  const end = await within(server, readStream(server.client(), TOPIC).final());
  assert.ok(end.kind === 'aborted');
  assert.deepEqual([end.text, end.reason, end.by], ['ok', 'enough', 'alice']);
  await server.stop();
});

test('a cancel stays the error of the writer although the abort cannot be published', async () => {
  const server = await started();
  const writer = await writeStream(server.client(), TOPIC);
  await server.clock.advance(100);
  const unreachable = server.refusing();
  server.cut();
  await within(server, writer.cancel('enough'), 200_000);
  unreachable.end();
  await assert.rejects(writer.write('more'), { code: 'cancelled' });
  await server.stop();
});

test('a part that the program changes is published as it was written', async () => {
  const server = await started();
  const call = { type: 'tool-call', id: 'c1', name: 'weather', text: '' };
  const writer = await writeStream(server.client(), TOPIC);
  await writer.write(call);
  call.text += '{}';
  await writer.write({ text: '{}' });
  await within(server, writer.complete());
  const { parts } = await within(server, readStream(server.client(), TOPIC).final());
  assert.deepEqual(parts, [call]);
  await server.stop();
});

test('leaving never cancels', async () => {
  const server = await started();
  const writer = await writeStream(server.client(), TOPIC);
  const piping = writer.pipe(model(server, TEXT.repeat(4)));
  const client = server.client();
  const reader = readStream(client, TOPIC);
  const leaving = (async () => {
    for await (const event of reader) if (event.kind === 'delta') break;
  })();
  await within(server, leaving);
  reader.close();
  await assert.rejects(() => reader.final(), { code: 'closed' });
  await client.close();
  await within(server, piping);
  assert.ok(!writer.signal.aborted);
  await server.stop();
});

test('an id of an earlier answer is a conflict', async () => {
  const server = await started();
  const first = await writeStream(server.client(), TOPIC, { id: 'r1' });
  await first.write('one ');
  await within(server, first.complete());
  const second = await writeStream(server.client(), TOPIC, { id: 'r1' });
  await second.write('two ');
  await assert.rejects(within(server, second.complete()), {
    code: 'conflict',
    message: 'The stream r1 has another writer with this epoch or a higher one.',
    remedy: /another `id` for another answer/,
  });
  await server.stop();
});

test('only events with the whole answer have a text that replaces what is shown', async () => {
  const server = await started();
  const writer = await writeStream(server.client(), TOPIC);
  await writer.write('one ');
  await server.clock.advance(1_000);
  const shown: StreamEvent[] = [];
  const reading = (async () => {
    for await (const event of readStream(server.client(), TOPIC))
      if (shown.push(event) === 2) break;
  })();
  await within(server, reading);
  assert.deepEqual(
    shown.map(({ kind }) => kind),
    ['start', 'delta'],
  );
  assert.equal(amount(shown), 'one ');
  await within(server, writer.complete());
  await server.stop();
});

test('a failed writer is taken over where it stopped, and stops if it is still running', async () => {
  const server = await started();
  const events = collect(readStream(server.client(), TOPIC));
  const old = await writeStream(server.client(), TOPIC, { id: 'r1' });
  await old.write('one ');
  await server.clock.advance(1_000);
  const taken = writeStream(server.client(), TOPIC, { id: 'r1', takeOver: true });
  const writer = await within(server, taken);
  assert.equal(writer.epoch, 1);
  assert.equal(writer.text, 'one ');
  await server.clock.advance(1_000);
  await assert.rejects(old.write('never'), { code: 'conflict' });
  await writer.write('two');
  await within(server, writer.complete());
  assert.equal(amount(await within(server, events)), 'one two');
  const late = writeStream(server.client(), TOPIC, { id: 'r1', takeOver: true });
  await assert.rejects(within(server, late), { code: 'conflict' });
  await server.stop();
});

test('a takeover accepts only frames of its sender', async () => {
  const server = await started();
  const [ps, mallory] = ['svc', 'mallory'].map((name) =>
    server.client({ token: server.token(name, { kind: 'service' }) }),
  ) as [PubSub, PubSub];
  const forged = await writeStream(mallory, TOPIC, { id: 'r1' });
  await forged.write('forged');
  await within(server, forged.complete());
  const old = await writeStream(ps, TOPIC, { id: 'r1' });
  await old.write('real ');
  await server.clock.advance(1_000);
  const taken = writeStream(ps, TOPIC, { id: 'r1', takeOver: true, sender: 'svc' });
  assert.equal((await within(server, taken)).text, 'real ');
  await server.stop();
});

test('a reader with the wrong sender logs once whose frames it ignores', async () => {
  const server = await started();
  const warnings: string[] = [];
  const logger = { warn: (output: string) => warnings.push(output), error: () => {} };
  const ps = server.client({ token: server.token('svc', { kind: 'service' }), logger });
  const reader = readStream(ps, TOPIC, { id: 'r1', sender: 'chat-backend' });
  const other = readStream(ps, TOPIC, { id: 'r1', sender: 'svc' });
  const writer = await writeStream(ps, TOPIC, { id: 'r1' });
  await writer.write('text');
  await within(server, writer.complete());
  assert.equal((await within(server, other.final())).text, 'text');
  reader.close();
  assert.deepEqual(warnings, [
    'The reader of the stream r1 ignores the frames of svc, because its `sender` is chat-backend. ' +
      'If they are of the writer, pass the user id in its token as `sender`.',
  ]);
  await server.stop();
});

test('no writer takes over a stream with the highest epoch', async () => {
  const server = await started();
  const [ps, mallory] = ['svc', 'mallory'].map((name) =>
    server.client({ token: server.token(name, { kind: 'service' }) }),
  ) as [PubSub, PubSub];
  await writeStream(mallory, TOPIC, { id: 'r1', epoch: Number.MAX_SAFE_INTEGER });
  await server.clock.advance(1_000);
  const late = writeStream(ps, TOPIC, { id: 'r1', takeOver: true });
  const rejected = { code: 'conflict', message: /highest epoch/, remedy: /pass `sender`/ };
  await assert.rejects(within(server, late), rejected);
  const taken = writeStream(ps, TOPIC, { id: 'r1', takeOver: true, sender: 'svc' });
  const writer = await within(server, taken);
  await writer.write('real');
  await within(server, writer.complete());
  const reader = readStream(ps, TOPIC, { id: 'r1', sender: 'svc' });
  assert.equal((await within(server, reader.final())).text, 'real');
  await server.stop();
});

test('`allow` also decides about a cancel without a sender', async () => {
  const server = await started();
  const asked: string[] = [];
  const allow = (by: string) => asked.push(by) > 1;
  const writer = await writeStream(server.client(), TOPIC, { allow });
  const received = writer as unknown as { _receive(message: object): void };
  const data = { stream: writer.id, reason: 'enough' };
  received._receive({ topic: TOPIC, id: 'm1', type: 'stream.cancel', data, timestamp: 1 });
  await writer.write('ok');
  assert.deepEqual(asked, ['']);
  received._receive({ topic: TOPIC, id: 'm2', type: 'stream.cancel', data, timestamp: 1 });
  await assert.rejects(writer.write('more'), { code: 'cancelled' });
  await server.stop();
});

test('a writer rejects an id that no stream can have', async () => {
  const server = await started();
  for (const id of ['', 'latest', 'next', 'x'.repeat(101)]) {
    const rejected = { code: 'invalid_option', field: 'id', message: /id of a stream/ };
    await assert.rejects(writeStream(server.client(), TOPIC, { id }), rejected);
  }
  await server.stop();
});

test('a cancelled stream says who cancelled it, and why', async () => {
  const server = await started();
  const reader = readStream(
    server.client({ token: server.token('ana', { kind: 'service' }) }),
    TOPIC,
  );
  const writer = await writeStream(server.client(), TOPIC);
  await writer.write('one ');
  await server.clock.advance(1_000);
  await within(server, reader.cancel('enough'));
  await within(server, reader.final());
  await assert.rejects(writer.write('two'), (error: unknown) => {
    assert.ok(error instanceof StreamCancelled);
    const { name, code, reason, by, topic } = error;
    assert.deepEqual(
      { name, code, reason, by, topic },
      { name: 'StreamCancelled', code: 'cancelled', reason: 'enough', by: 'ana', topic: TOPIC },
    );
    return error === writer.signal.reason;
  });
  await server.stop();
});

test('a cancel that no writer received ends the stream at the takeover', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  const dead = server.client();
  const old = await writeStream(dead, TOPIC, { id: 'r1', listen: false });
  await old.write('one ');
  await server.clock.advance(1_000);
  await dead.close();
  await within(server, reader.cancel('enough'));
  const taken = writeStream(server.client(), TOPIC, { id: 'r1', takeOver: true });
  const writer = await within(server, taken);
  await assert.rejects(writer.write('two'), StreamCancelled);
  const { text, reason } = await within(server, reader.final());
  assert.deepEqual({ text, reason }, { text: 'one ', reason: 'enough' });
  await server.stop();
});

for (const what of ['cancel', 'steer'] as const) {
  test(`a ${what} that a reader sends while a stream is taken over reaches the writer`, async () => {
    const server = await started();
    const reader = readStream(server.client(), TOPIC);
    const dead = server.client();
    const old = await writeStream(dead, TOPIC, { id: 'r1', listen: false });
    await old.write('one ');
    await server.clock.advance(1_000);
    await dead.close();
    const ps = server.client();
    const { history, subscribe } = ps;
    let isJoined = false;
    ps.subscribe = async (...given: Parameters<typeof subscribe>) => {
      const subscription = await subscribe.apply(ps, given);
      isJoined = true;
      return subscription;
    };
    ps.history = async function* (...given: Parameters<typeof history>) {
      assert.ok(isJoined, 'the history is read before the subscription is confirmed');
      const messages = [];
      for await (const message of history.apply(ps, given)) messages.push(message);
      // Other messages of the topic, as many as the history retains, do not take its place.
      const note = (): Promise<unknown> => server.publish(TOPIC, { type: 'note', data: 1 });
      for (let n = 0; n < 100; n++) await note();
      await (what === 'cancel' ? reader.cancel('enough') : reader.steer('shorter'));
      yield* messages;
    } as typeof history;
    const received: unknown[] = [];
    const onSteer = (data: unknown): number => received.push(data);
    const taken = writeStream(ps, TOPIC, { id: 'r1', takeOver: true, onSteer });
    const writer = await within(server, taken);
    await server.clock.advance(1_000);
    if (what === 'steer') {
      await within(server, writer.complete());
      assert.deepEqual(received, ['shorter']);
    } else {
      await assert.rejects(writer.write('two'), { code: 'cancelled' });
      const { text, reason } = await within(server, reader.final());
      assert.deepEqual({ text, reason }, { text: 'one ', reason: 'enough' });
    }
    await server.stop();
  });
}

test('a stalled reader requests the history only while it is connected', async () => {
  const server = await started();
  const ps = server.client();
  const writer = await writeStream(server.client(), TOPIC);
  await writer.write('The first half, ');
  const reader = readStream(ps, TOPIC);
  await server.clock.advance(1_000);
  const requests: string[] = [];
  const { history } = ps;
  ps.history = ((...given: Parameters<typeof history>) => {
    requests.push(ps.state);
    return history.apply(ps, given);
  }) as typeof history;
  const down = server.refusing();
  await server.clock.advance(45_000);
  down.end();
  assert.deepEqual(requests, []);
  await writer.write('and the second.');
  await within(server, writer.complete());
  const { text } = await within(server, reader.final());
  assert.equal(text, 'The first half, and the second.');
  readStream(ps, TOPIC, { id: 'silent' });
  await server.clock.advance(1_000);
  const data = { stream: 'silent', epoch: 0, writer: 'w' };
  await server.publish(TOPIC, { type: 'stream.start', data });
  await server.clock.advance(15_000);
  assert.deepEqual(requests, ['connected']);
  await server.stop();
});

test('two writers of one epoch are never mixed', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  await server.clock.advance(1);
  const first = await writeStream(server.client(), TOPIC, { id: 'r1', listen: false });
  await first.write('first');
  await server.clock.advance(100);
  const second = await writeStream(server.client(), TOPIC, { id: 'r1', listen: false });
  await second.write('second').catch(() => {});
  await server.clock.advance(100);
  await assert.rejects(second.write('more'), { code: 'conflict' });
  await within(server, first.complete());
  assert.equal((await within(server, reader.final())).text, 'first');
  await server.stop();
});

test('a model that throws aborts the stream, and so does an exception in the block', async () => {
  const server = await started();
  async function* broken() {
    yield 'half';
    throw new RangeError('out of tokens');
  }
  const reader = readStream(server.client(), TOPIC);
  const writer = await writeStream(server.client(), TOPIC);
  await assert.rejects(within(server, writer.pipe(broken())), RangeError);
  const end = await within(server, reader.final());
  assert.deepEqual([end.kind, end.reason, end.text], ['aborted', 'error', 'half']);
  const next = readStream(server.client(), TOPIC, { id: 'next' });
  await server.clock.advance(100);
  const left = await writeStream(server.client(), TOPIC);
  await within(server, left[Symbol.asyncDispose]());
  assert.equal((await within(server, next.final())).reason, 'incomplete');
  await server.stop();
});

test('a source whose end throws, too, ends the stream with the first error', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  const writer = await writeStream(server.client(), TOPIC);
  const source: Iterable<string> = {
    [Symbol.iterator]: () => ({
      next() {
        throw new RangeError('out of tokens');
      },
      return() {
        throw new TypeError('not open');
      },
    }),
  };
  await assert.rejects(within(server, writer.pipe(source)), RangeError);
  assert.equal((await within(server, reader.final())).kind, 'aborted');
  await server.stop();
});

test('a source that the signal of the writer stops ends the pipe with the cancellation', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  const writer = await writeStream(server.client(), TOPIC);
  const stopped = new Promise<never>((_, reject) => {
    writer.signal.addEventListener('abort', () => reject(new RangeError('stopped')));
  });
  const source = {
    [Symbol.asyncIterator]: () => ({ next: (): Promise<IteratorResult<string>> => stopped }),
  };
  const piping = assert.rejects(writer.pipe(source), { code: 'cancelled' });
  await server.clock.advance(1_000);
  await within(server, reader.cancel());
  await within(server, piping);
  assert.equal((await within(server, reader.final())).reason, 'user');
  await server.stop();
});

test('a pipe whose model is silent ends when another writer takes over', async () => {
  const server = await started();
  let isClosed = false;
  const pieces = [{ done: false, value: 'half' }];
  const silent = {
    [Symbol.asyncIterator]: () => ({
      next: async (): Promise<IteratorResult<string>> => pieces.pop() ?? new Promise(() => {}),
      return: async (): Promise<IteratorResult<string>> => {
        isClosed = true;
        return { done: true, value: undefined };
      },
    }),
  };
  const client = server.client();
  const old = await writeStream(client, TOPIC, { id: 'r1' });
  const piping = assert.rejects(old.pipe(silent), { code: 'conflict' });
  await server.clock.advance(1_000);
  const options = { id: 'r1', takeOver: true };
  const writer = await within(server, writeStream(client, TOPIC, options));
  await within(server, piping);
  assert.ok(isClosed);
  await within(server, writer.complete());
  await server.stop();
});

test('an exception of a steer handler is reported, also of an asynchronous one', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  const client = server.client();
  const reported: string[] = [];
  client.on('error', ({ message }) => reported.push(message));
  const writer = await writeStream(client, TOPIC, {
    onSteer: async (data) => {
      throw new RangeError(String(data));
    },
  });
  await server.clock.advance(1_000);
  await within(server, reader.steer('louder'));
  await within(server, writer.complete());
  assert.deepEqual(reported, ['louder']);
  await server.stop();
});

const asynchronous = (async () => true) as unknown as () => boolean;
const rejecting = (async () => {
  throw new RangeError('no decision');
}) as unknown as () => boolean;
const failing = (): boolean => {
  throw new RangeError('no decision');
};
const promised = '`allow` returned a promise.';
for (const [kind, allow, errors] of [
  ['is asynchronous', asynchronous, [promised]],
  ['returns a promise that rejects', rejecting, [promised, 'no decision']],
  ['throws', failing, ['no decision']],
] as const) {
  test(`nobody may cancel or steer if \`allow\` ${kind}`, async () => {
    const server = await started();
    const reader = readStream(server.client(), TOPIC);
    const client = server.client();
    const reported: string[] = [];
    client.on('error', (error) => reported.push(error.message));
    const received: unknown[] = [];
    const writer = await writeStream(client, TOPIC, {
      allow,
      onSteer: (data) => received.push(data),
    });
    await server.clock.advance(1_000);
    await within(server, reader.steer('louder'));
    await within(server, reader.cancel());
    await server.clock.advance(1_000);
    await within(server, writer.complete());
    assert.deepEqual(received, []);
    assert.deepEqual(reported, [...errors, ...errors]);
    await server.stop();
  });
}

test('steer handlers run one at a time, in order', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  const received: unknown[] = [];
  let go = (): void => {};
  const opened = new Promise<void>((resolve) => {
    go = resolve;
  });
  const onSteer = async (data: unknown): Promise<void> => {
    received.push(data);
    await opened;
    received.push(data);
  };
  const writer = await writeStream(server.client(), TOPIC, { onSteer });
  await server.clock.advance(1_000);
  for (const data of [1, 2]) await within(server, reader.steer(data));
  await server.clock.advance(1_000);
  assert.deepEqual(received, [1]);
  go();
  await server.clock.advance(1_000);
  assert.deepEqual(received, [1, 1, 2, 2]);
  await within(server, writer.complete());
  await server.stop();
});

for (const [name, bad, code] of [
  ['half of a surrogate pair', ['ok', '\ude00'], 'invalid_payload'],
  ['no piece', ['ok', 5], 'invalid_payload'],
  ['a part that is not plain JSON', ['ok', { type: 'chart', at: new Date(0) }], 'invalid_payload'],
  ['ten megabytes', Array.from({ length: 10_000 }, () => 'x'.repeat(1024)), 'payload_too_large'],
] as const) {
  test(`${name} ends in an error and an abort`, async () => {
    const server = await started();
    const reader = readStream(server.client(), TOPIC);
    await server.clock.advance(1);
    const writer = await writeStream(server.client(), TOPIC);
    await assert.rejects(within(server, writer.pipe(bad as readonly Piece[])), { code });
    const end = await within(server, reader.final());
    assert.deepEqual([end.kind, end.reason], ['aborted', code]);
    assert.match(end.text, /^(ok|x{190000,})$/);
    await server.stop();
  });
}

test('the error of a piece says what it is and how to send it', () => {
  const pieces: readonly [piece: unknown, problem: RegExp, remedy: RegExp][] = [
    [null, /is null,/, /Skip it.*fromOpenAI/],
    [undefined, /is undefined,/, /Skip it.*fromOpenAI/],
    [5, /is a number,/, /Write its text/],
    [['a'], /is an array,/, /Write its text/],
    [new Uint8Array(2), /is an object,/, /TextDecoderStream/],
    [{ choices: [{ delta: { content: 'a' } }] }, /neither a `type` nor a `text`/, /fromOpenAI/],
    [{ type: 'a', text: 5 }, /one of them is not text/, /\{text\}/],
    ['\ude00', /half of a surrogate pair/, /Decode bytes/],
    [{ text: '\ude00' }, /half of a surrogate pair/, /Decode bytes/],
  ];
  for (const [piece, problem, remedy] of pieces) {
    const error = refusal('invalid_payload', piece, TOPIC);
    assert.match(error.message, problem);
    assert.match(error.remedy, remedy);
    assert.equal(error.field, 'piece');
  }
});

test('usage that is not plain JSON ends the stream for its readers', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC);
  const writer = await writeStream(server.client(), TOPIC);
  await writer.write('ok');
  await assert.rejects(within(server, writer.complete({ usage: Number.NaN })), {
    code: 'invalid_payload',
    message: /data\.usage/,
  });
  const { kind, text } = await within(server, reader.final());
  assert.deepEqual([kind, text], ['aborted', 'ok']);
  await server.stop();
});

test('readers get the end of an answer that is too large for their server', async () => {
  const server = await new MemoryServer({ maxPayload: 2_000 }).start();
  const reader = readStream(server.client(), TOPIC);
  const writer = await writeStream(server.client(), TOPIC);
  const paragraphs = Array.from({ length: 9 }, () => 'x'.repeat(500));
  const writing = (async () => {
    for (const paragraph of paragraphs) {
      await writer.write(paragraph);
      await new Promise<void>((resolve) => server.clock.callLater(1_000, resolve));
    }
  })();
  await assert.rejects(within(server, writing), { code: 'payload_too_large' });
  const end = await within(server, reader.final());
  assert.deepEqual([end.kind, end.stale], ['aborted', false]);
  assert.equal(end.text, paragraphs.join('').slice(0, 500 * end.count));
  assert.ok(end.count > 2);
  await server.stop();
});

for (const id of ['r1', 'next']) {
  for (const how of ['a publish', 'a route']) {
    test(`a cancel of ${id} before the first event reaches the writer by ${how}`, async () => {
      const server = await started();
      let writer: StreamWriter | undefined;
      const route = (stream: string, reason: string) => {
        assert.equal(stream, 'r1');
        return writer?.cancel(reason, 'route');
      };
      const onCancel = how === 'a route' ? route : undefined;
      const reader = readStream(server.client(), TOPIC, { id, onCancel });
      const cancelling = reader.cancel('enough');
      await server.clock.advance(1_000);
      writer = await writeStream(server.client(), TOPIC, { id: 'r1' });
      await within(server, cancelling);
      const { kind, text, ...end } = await within(server, reader.final());
      assert.deepEqual([kind, text], ['aborted', '']);
      assert.ok('reason' in end && end.reason === 'enough');
      await server.stop();
    });
  }
}

test('a cancel waits until the reader knows whether there is a stream', async () => {
  const server = await started();
  const idle = readStream(server.client(), TOPIC);
  await assert.rejects(within(server, idle.cancel()), { code: 'usage' });
  await assert.rejects(within(server, idle.steer('shorter')), { code: 'usage' });
  idle.close();
  const writer = await writeStream(server.client(), TOPIC);
  const reader = readStream(server.client(), TOPIC);
  await within(server, reader.cancel());
  assert.equal((await within(server, reader.final())).kind, 'aborted');
  assert.equal(writer.signal.aborted, true);
  await server.stop();
});

test('a cancel ends with a reader that is closed', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC, { id: 'r1' });
  const cancelling = reader.cancel();
  const ended = assert.rejects(cancelling, { code: 'closed' });
  await server.clock.advance(1_000);
  reader.close();
  await within(server, ended);
  await server.stop();
});

test('a cancel without permission is an error, and does not end the stream', async () => {
  const server = await started();
  const reader = readStream(server.client({ token: server.token('mallory') }), TOPIC);
  const allow = (by: string): boolean => by === 'alice';
  const writer = await writeStream(server.client({ token: server.token('svc') }), TOPIC, { allow });
  await writer.write('a');
  await server.clock.advance(1_000);
  await within(server, reader.cancel());
  await server.clock.advance(1_000);
  await writer.write('b');
  await within(server, writer.complete());
  assert.equal((await within(server, reader.final())).text, 'ab');
  await server.stop();
});

test('a reader waits for a server that is not reachable', async () => {
  const server = await started();
  const unreachable = server.refusing();
  const reader = readStream(server.client(), TOPIC);
  // Longer than the timeout of a subscription.
  await server.clock.advance(35_000);
  unreachable.end();
  const writer = await within(server, writeStream(server.client(), TOPIC));
  await writer.write(TEXT);
  await within(server, writer.complete());
  const { kind, text } = await within(server, reader.final());
  assert.deepEqual([kind, text], ['done', TEXT]);
  await server.stop();
});

test('a writer that begins while no server is reachable can be cancelled later', async () => {
  const server = await started();
  const warnings: string[] = [];
  const logger = { warn: (output: string) => warnings.push(output), error: () => {} };
  const unreachable = server.refusing();
  const writer = await writeStream(server.client({ logger }), TOPIC);
  // Longer than the timeout of a subscription.
  await server.clock.advance(35_000);
  unreachable.end();
  const reader = readStream(server.client(), TOPIC);
  await within(server, reader[Symbol.asyncIterator]().next());
  await within(server, reader.cancel());
  await within(server, reader.final());
  assert.equal(writer.signal.aborted, true);
  assert.deepEqual(
    warnings.filter((output) => output.includes('cannot cancel')),
    [],
  );
  await server.stop();
});

test('a writer that may not read its topic says that nobody can cancel', async () => {
  const server = await new MemoryServer({ rules: { maySubscribe: () => false } }).start();
  const warnings: string[] = [];
  const logger = { warn: (output: string) => warnings.push(output), error: () => {} };
  const client = server.client({ logger });
  for (const _ of 'ab') {
    const writer = await writeStream(client, TOPIC);
    await server.clock.advance(1_000);
    await within(server, writer.complete());
  }
  const output = warnings.filter((text) => text.includes('cannot cancel or steer the stream'));
  assert.equal(output.length, 1);
  await server.stop();
});

test('a takeover of a stream that has not begun begins it', async () => {
  const server = await started();
  const reader = readStream(server.client(), TOPIC, { id: 'r1' });
  const taking = writeStream(server.client(), TOPIC, { id: 'r1', takeOver: true, meta: 'm' });
  const writer = await within(server, taking);
  await within(server, writer.pipe(['one ', 'two']));
  const [first] = await within(server, collect(reader));
  assert.deepEqual(first, { kind: 'start', meta: 'm' });
  await server.stop();
});

test('a cancel that comes after the end of the answer does not change it', async () => {
  const server = await started();
  const writer = await writeStream(server.client(), TOPIC);
  await writer.write('all of it');
  const completing = writer.complete();
  await writer.cancel('too late');
  await within(server, completing);
  await within(server, writer.abort());
  const reader = readStream(server.client(), TOPIC);
  const { kind, text } = await within(server, reader.final());
  assert.deepEqual([kind, text, writer.signal.aborted], ['done', 'all of it', false]);
  await server.stop();
});

test('a write waits while too much waits to be sent', async () => {
  const server = await started();
  const ps = server.client();
  const { publish } = ps;
  let open: () => void = () => {};
  const isOpen = new Promise<void>((resolve) => {
    open = resolve;
  });
  ps.publish = async (...given: Parameters<typeof publish>) => {
    await isOpen;
    return publish.apply(ps, given);
  };
  const writer = await writeStream(ps, TOPIC);
  let isWritten = false;
  const writing = writer.write('x'.repeat(65_536)).then(() => {
    isWritten = true;
  });
  await new Promise(setImmediate);
  assert.equal(isWritten, false);
  open();
  await within(server, writing);
  await writer.write('more');
  await server.stop();
});

test('a publish that the server rejects for a time is repeated after it', async () => {
  const server = await started();
  const ps = server.client();
  const { publish } = ps;
  const times: number[] = [];
  ps.publish = async (...given: Parameters<typeof publish>) => {
    times.push(server.clock.now());
    if (times.length === 1) throw fromCode('unavailable', 'later', { retryAfter: 5_000 });
    return publish.apply(ps, given);
  };
  const writer = await writeStream(ps, TOPIC);
  await within(server, writer.complete());
  const [first, second] = times as [number, number];
  assert.ok(second - first >= 5_000);
  await server.stop();
});

for (const [count, limited] of [
  [1, 0],
  [0, 1],
] as const) {
  test(`slow publishes are logged ${count ? 'once for a client' : 'by the client alone if its rate is the cause'}`, async () => {
    const server = await started();
    const warnings: string[] = [];
    const logger = { warn: (output: string) => warnings.push(output), error: () => {} };
    const ps = server.client({ logger });
    Object.defineProperty(ps, 'slowed', { value: limited });
    const { publish } = ps;
    ps.publish = async (...given: Parameters<typeof publish>) => {
      await new Promise<void>((resolve) => server.clock.callLater(1_500, resolve));
      return publish.apply(ps, given);
    };
    for (const id of 'ab') {
      const writer = await writeStream(ps, TOPIC, { id });
      await within(server, writer.complete());
      assert.equal(writer.stats.slowed, 2);
    }
    const slow = warnings.filter((output) => output.includes('A publish of the stream'));
    assert.equal(slow.length, count);
    await server.stop();
  });
}

test('a writer that cannot take over leaves its topic', async () => {
  const server = await started();
  const client = server.client();
  const { _driver: driver } = client as unknown as { readonly _driver: Driver };
  const ended = await writeStream(client, TOPIC, { id: 'r1' });
  await within(server, ended.complete());
  const taking = writeStream(client, TOPIC, { id: 'r1', takeOver: true });
  await assert.rejects(within(server, taking), { code: 'conflict' });
  assert.equal(driver._background?.deliveries.inboxes.size, 0);
  await server.stop();
});

test('a writer that ends before its subscription is answered logs nothing', async () => {
  const server = await started();
  const warnings: string[] = [];
  const logger = { warn: (output: string) => warnings.push(output), error: () => {} };
  const ps = server.client({ logger });
  const { subscribe } = ps;
  ps.subscribe = async (...given: Parameters<typeof subscribe>) => {
    await new Promise<void>((resolve) => server.clock.callLater(5_000, resolve));
    return subscribe.apply(ps, given);
  };
  const writer = await writeStream(ps, TOPIC);
  await within(server, writer.complete());
  await server.clock.advance(6_000);
  assert.deepEqual(warnings, []);
  await server.stop();
});

for (const how of ['has ended', 'a reader has cancelled']) {
  test(`a writer that ${how} leaves its topic`, async () => {
    const server = await started();
    const client = server.client();
    const { _driver: driver } = client as unknown as { readonly _driver: Driver };
    const subscriptions = () => driver._background?.deliveries.inboxes.size;
    const writer = await writeStream(client, TOPIC);
    const reader = readStream(server.client(), TOPIC);
    await server.clock.advance(1_000);
    assert.equal(subscriptions(), 1);
    if (how === 'has ended') await within(server, writer.complete());
    else {
      await within(server, reader.cancel());
      await within(server, reader.final());
      await assert.rejects(writer.write('more'), StreamCancelled);
    }
    assert.equal(subscriptions(), 0);
    await server.stop();
  });
}

const BIG = { type: 'chart', sums: [1n] } as unknown as Piece;
const LOOP: Record<string, unknown> = { type: 'chart' };
LOOP['self'] = LOOP;

for (const [what, bad, field, remedy] of [
  ['a date', { type: 'chart', at: new Date(0) }, 'piece.at', /toISOString/],
  ['a bigint', BIG, 'piece.sums[0]', /as a string/],
  ['itself', LOOP as unknown as Piece, undefined, /Flatten/],
] as const) {
  test(`a part that contains ${what} is refused at once`, async () => {
    const server = await started();
    const writer = await writeStream(server.client(), TOPIC);
    await assert.rejects(writer.write(bad), (error: PubSubError) => {
      assert.equal(error.code, 'invalid_payload');
      if (field) assert.equal(error.field, field);
      assert.match(error.remedy, remedy);
      return true;
    });
    const { kind, text } = await within(server, readStream(server.client(), TOPIC).final());
    assert.deepEqual([kind, text], ['aborted', '']);
    await server.stop();
  });
}

for (const [what, source, remedy] of [
  ['a whole answer', { choices: [] }, /`stream: true`/],
  ['a promise', Promise.resolve(), /Await it/],
  ['a function', () => [], /Call it/],
  ['the result of `streamText`', { fullStream: [] }, /fullStream/],
  ['nothing', undefined, /`stream: true`/],
] as const) {
  test(`${what} is not a source`, async () => {
    const server = await started();
    const writer = await writeStream(server.client(), TOPIC);
    const refused = (field: string) => (error: PubSubError) => {
      assert.deepEqual([error.code, error.field], ['invalid_option', field]);
      assert.match(error.remedy, remedy);
      return true;
    };
    const given = source as unknown as AsyncIterable<never>;
    await assert.rejects(within(server, writer.pipe(given)), refused('source'));
    for (const convert of [fromOpenAI, fromAnthropic, fromAISDK])
      assert.throws(() => convert(given), refused('stream'));
    const end = await within(server, readStream(server.client(), TOPIC).final());
    assert.deepEqual([end.kind, end.kind === 'aborted' && end.reason], ['aborted', 'error']);
    await server.stop();
  });
}

test('a text is a source', async () => {
  const server = await started();
  const writer = await writeStream(server.client(), TOPIC);
  await within(server, writer.pipe(TEXT));
  assert.equal(writer.text, TEXT);
  await server.stop();
});

test('a reader of a pattern is refused', async () => {
  const server = await started();
  const reader = readStream(server.client(), 'chat.*.abc');
  const refused = { code: 'invalid_topic', topic: 'chat.*.abc', message: /without wildcards/ };
  await assert.rejects(within(server, reader.final()), refused);
  await assert.rejects(within(server, collect(reader)), refused);
  await server.stop();
});

test('plain tokens of HIP-56 are readable, and parts come in order with the text', async () => {
  const server = await started();
  const plain = readStream(server.client(), 'chat.session.plain');
  await server.clock.advance(1);
  for (const [index, content] of whole(TEXT).entries())
    await server.publish('chat.session.plain', { type: 'token', data: { content, index } });
  await server.publish('chat.session.plain', { type: 'message.complete', data: {} });
  assert.equal((await within(server, plain.final())).text, TEXT);
  const reader = readStream(server.client(), TOPIC);
  const writer = await writeStream(server.client(), TOPIC);
  await writer.write('Look: ');
  await writer.write({ type: 'tool-call', id: 'c1', name: 'weather', text: '{"city": "Kö' });
  await server.clock.advance(100);
  assert.deepEqual(partialJson(reader.parts.at(-1)?.text ?? ''), { city: 'Kö' });
  await writer.write({ text: 'ln"}' });
  await writer.write('Rain.');
  await within(server, writer.complete());
  const { text, parts } = await within(server, reader.final());
  assert.equal(text, 'Look: Rain.');
  assert.deepEqual(partialJson(parts[1]?.text ?? ''), { city: 'Köln' });
  await server.stop();
});

test('many streams share the rate of one token without an error', async () => {
  const server = await started();
  const ps = server.client({ token: server.token('gateway', { kind: 'service' }) });
  const texts = Array.from({ length: 12 }, (_, n) => `${n} ${TEXT}`.repeat(3));
  const readers = texts.map((_, n) => readStream(server.client(), `chat.session.${n}`));
  await server.clock.advance(1);
  const write = async (text: string, n: number): Promise<number> => {
    const writer = await writeStream(ps, `chat.session.${n}`);
    await writer.pipe(model(server, text));
    return writer.stats.retries;
  };
  assert.deepEqual(await within(server, Promise.all(texts.map(write))), Array(12).fill(0));
  const ends = await within(server, Promise.all(readers.map((reader) => reader.final())));
  assert.deepEqual(
    ends.map(({ text }) => text),
    texts,
  );
  await server.stop();
});

test('beside a stream a cursor stays fresh, and chat does not wait', async () => {
  const server = await new MemoryServer({ publishRateUser: 10 }).start();
  const { clock } = server;
  const ps = server.client({ token: server.token('alice'), sendQueue: { policy: 'latest' } });
  await ps.connect();
  const came: Record<string, [at: number, output: number][]> = { cursor: [], chat: [] };
  await server.client().subscribe('chat.session.abc', {
    onMessage: ({ type, data }) => void came[type]?.push([clock.now(), data as number]),
  });
  const say = (type: string, key?: string): Promise<unknown> =>
    ps
      .publish('chat.session.abc', { type, data: clock.now() }, { key })
      .catch((error) => assert.equal(error.code, 'superseded'));
  const busy: Promise<unknown>[] = [0, 1, 2].map(async (n) => {
    const writer = await writeStream(ps, `chat.session.${n}`);
    await writer.pipe(model(server, TEXT.repeat(6)));
  });
  await clock.advance(1_000); // uses up the burst
  const began = clock.now();
  for (let n = 0; n < 480; n += 1) {
    busy.push(say('cursor', 'cursor'));
    if (n % 60 === 59) busy.push(say('chat'));
    await clock.advance(16);
  }
  const ended = clock.now();
  const { cursor = [], chat = [] } = came;
  const times = [began, ...cursor.map(([at]) => at).filter((at) => at <= ended), ended];
  assert.ok(times.every((at, n) => n === 0 || at - (times[n - 1] ?? 0) <= 310));
  assert.ok(cursor.every(([at, output]) => at - output <= 310));
  assert.ok(chat.length >= 7);
  assert.ok(chat.every(([at, output]) => at - output <= 120));
  await within(server, Promise.all(busy));
  await server.stop();
});

test('the best value of JSON that is still being written', () => {
  for (const { text, value } of load<{ text: string; value?: unknown }[]>('partial_json.json'))
    assert.deepEqual(partialJson(text), value, text);
});

test('a reader of the next stream subscribes once its code has loaded, so that it misses none', async () => {
  const server = await started();
  const client = server.client();
  const { subscribe } = client;
  let isLoaded = false;
  const order: boolean[] = [];
  client.subscribe = ((...args: Parameters<typeof subscribe>) => {
    order.push(isLoaded);
    return subscribe.apply(client, args);
  }) as typeof subscribe;
  const loading = import('../../../js/src/streams/reading.js').then(() => {
    isLoaded = true;
  });
  const reader = readStream(client, TOPIC, { id: 'next' });
  await loading;
  await server.clock.advance(100);
  const writer = await writeStream(server.client(), TOPIC, { id: 'one' });
  await within(server, writer.complete());
  assert.equal((await within(server, reader.final())).kind, 'done');
  assert.equal(reader.id, 'one');
  assert.deepEqual(order, [true]);
  await server.stop();
});
