import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';

import { InvalidOption } from '../../../js/src/errors.js';
import { sse } from '../../../js/src/sse.js';
import { readStream, writeStream } from '../../../js/src/streams/index.js';
import { MemoryServer } from '../../../js/src/testing/index.js';
import { load } from '../files.js';

const TOPIC = 'chat.session.abc';

interface Answer {
  readonly title: string;
  readonly steps: readonly { type?: string; data?: object; pause?: number }[];
  readonly events: readonly (readonly [name: string, data: object])[];
}

const started = (): Promise<MemoryServer> => new MemoryServer().start();

/** The frames of a body until its end, and the error that ends it. */
function reading(body: ReadableStream<Uint8Array>): { frames: string[]; end: Promise<unknown> } {
  const frames: string[] = [];
  const decoder = new TextDecoder();
  const end = (async () => {
    for await (const chunk of body) frames.push(decoder.decode(chunk));
  })();
  return { frames, end: end.then(() => undefined).catch((error: unknown) => error) };
}

/** The name and the data of an event. */
function parsed(frame: string): [string, object] {
  const [, name, data] = /^event: (\w+)\ndata: (.*)\n\n$/.exec(frame) ?? [];
  return [name ?? '', JSON.parse(data ?? '')];
}

for (const { title, steps, events } of load<Answer[]>('stream_events.json'))
  test(`${title} is the body of an HTTP response`, async () => {
    const server = await started();
    const ps = server.client();
    const { frames, end } = reading(sse(readStream(server.client(), TOPIC, { id: 'r1' })));
    await server.clock.advance(1);
    for (const { type, data, pause } of steps) {
      if (pause !== undefined) await server.clock.advance(pause * 1_000);
      else {
        const publishing = ps.publish(TOPIC, {
          type: type ?? '',
          data: { stream: 'r1', epoch: 0, writer: 'w', ...data },
        });
        await server.clock.advance(1);
        await publishing;
      }
    }
    assert.equal(await end, undefined);
    assert.deepEqual(frames.map(parsed), events);
    await server.stop();
  });

test('a response sends comments while the answer pauses', async (t) => {
  const server = await started();
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const body = sse(readStream(server.client(), TOPIC)).getReader();
  for (let comments = 0; comments < 2; comments += 1) {
    const reads = body.read();
    await setImmediate(); // the body waits
    t.mock.timers.tick(15_000);
    assert.equal(new TextDecoder().decode((await reads).value), ': keepalive\n\n');
  }
  await body.cancel();
  await server.stop();
});

test('the end of a response closes its reader, and the stream continues', async () => {
  const server = await started();
  const writer = await writeStream(server.client(), TOPIC, { id: 'r1' });
  const reader = readStream(server.client(), TOPIC, { id: 'r1' });
  const body = sse(reader).getReader();
  const reads = body.read();
  const writing = writer.write('one');
  await server.clock.advance(100);
  await Promise.all([reads, writing]);
  const waiting = body.read();
  await body.cancel();
  assert.equal((await waiting).done, true);
  await assert.rejects(reader.final(), { code: 'closed' });
  const completing = writer.complete();
  await server.clock.advance(100);
  await completing;
  const other = readStream(server.client(), TOPIC, { id: 'r1' }).final();
  await server.clock.advance(100);
  assert.equal((await other).text, 'one');
  await server.stop();
});

test('a slow connection gets the joined deltas', async () => {
  const server = await started();
  const body = sse(readStream(server.client(), TOPIC, { id: 'r1' })).getReader();
  const writer = await writeStream(server.client(), TOPIC, { id: 'r1' });
  for (const text of ['one ', 'two ', 'three']) {
    const writing = writer.write(text);
    await server.clock.advance(200);
    await writing;
  }
  const decoder = new TextDecoder();
  const names = [];
  for (let events = 0; events < 2; events += 1)
    names.push(parsed(decoder.decode((await body.read()).value)));
  assert.deepEqual(names, [
    ['started', { meta: null }],
    ['delta', { text: 'one two three', pieces: ['one two three'] }],
  ]);
  await body.cancel();
  await server.stop();
});

test('a response ends with the client', async () => {
  const server = await started();
  const ps = server.client();
  const { frames, end } = reading(sse(readStream(ps, TOPIC)));
  await server.clock.advance(1);
  await ps.close();
  assert.equal(await end, undefined);
  assert.deepEqual(frames, []);
  await server.stop();
});

test('a response fails with the error of its reader', async () => {
  const server = await started();
  const { frames, end } = reading(sse(readStream(server.client(), 'chat.*')));
  assert.equal(((await end) as { code?: string }).code, 'invalid_topic');
  assert.deepEqual(frames, []);
  await server.stop();
});

test('the time between comments is checked', async () => {
  const server = await started();
  for (const keepalive of [0, Number.NaN, '15' as unknown as number])
    assert.throws(
      () => sse(readStream(server.client(), TOPIC), { keepalive }),
      (error) => error instanceof InvalidOption && error.field === 'keepalive',
    );
  await server.stop();
});
