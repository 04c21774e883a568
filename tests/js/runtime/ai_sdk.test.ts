import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fromAISDK, HanzoChatTransport } from '../../../js/src/ai-sdk/index.js';
import type { PubSubError } from '../../../js/src/index.js';
import type { Driver } from '../../../js/src/runtime/driver.js';
import { readStream, type StreamWriter, writeStream } from '../../../js/src/streams/index.js';
import { MemoryServer } from '../../../js/src/testing/index.js';

// The types of this package fail the checks of this repository.
const ai = await import('ai' as string);

const topic = (chat: string): string => `chat.session.${chat}`;

interface ShownPart {
  readonly type: string;
  readonly text?: string;
  readonly input?: unknown;
  readonly output?: unknown;
  readonly state?: string;
  readonly errorText?: string;
  readonly url?: string;
  readonly approval?: object;
}

interface Shown {
  readonly id: string;
  readonly role: string;
  readonly parts: readonly ShownPart[];
}

/** A chat of the AI SDK, created as its React and Vue packages do. */
function chat(
  server: MemoryServer,
  id: string,
  begin: () => Promise<StreamWriter>,
  client = server.client(),
) {
  const state = {
    status: 'ready',
    error: undefined as Error | undefined,
    messages: [] as Shown[],
    pushMessage: (message: Shown) => void state.messages.push(message),
    popMessage: () => void state.messages.pop(),
    replaceMessage: (n: number, message: Shown) => {
      state.messages[n] = message;
    },
    snapshot: <T>(value: T): T => structuredClone(value),
  };
  const asked: unknown[] = [];
  const transport = new HanzoChatTransport({
    client,
    topic,
    fetch: async (_, init) => {
      asked.push(JSON.parse(String(init?.body)));
      const { signal } = init ?? {};
      const aborted = new Promise<never>((_, reject) =>
        signal?.addEventListener('abort', () => reject(signal.reason)),
      );
      return Response.json({ stream: (await Promise.race([begin(), aborted])).id });
    },
  });
  const Chat: new (init: object) => unknown = class extends ai.AbstractChat {};
  const made = new Chat({ id, transport, state, generateId: ai.generateId }) as {
    sendMessage(message: { text: string }): Promise<void>;
    resumeStream(): Promise<void>;
    stop(): Promise<void>;
  };
  return { made, state, asked, transport, answer: () => state.messages.at(-1)?.parts ?? [] };
}

async function until(server: MemoryServer, isSo: () => boolean): Promise<void> {
  for (let n = 0; !isSo() && n < 1_000; n += 1) await server.clock.advance(20);
  assert.ok(isSo(), 'it did not happen in time');
}

test('an answer of a chat has its text, reasoning, tool calls, results and sources', async () => {
  const server = await new MemoryServer().start();
  const writing = server.client();
  const one = chat(server, 'a', async () => {
    const w = await writeStream(writing, topic('a'), { id: 'r1' });
    void w.pipe(
      fromAISDK(
        (async function* () {
          yield { type: 'start' };
          yield { type: 'reasoning-delta', id: '0', text: 'They want rain.' };
          yield { type: 'text-delta', id: '1', text: 'Let me ' };
          yield { type: 'text-delta', id: '1', text: 'look.' };
          yield { type: 'tool-input-start', id: 'c1', toolName: 'weather' };
          yield { type: 'tool-input-delta', id: 'c1', delta: '{"city": "Kö' };
          yield { type: 'tool-input-delta', id: 'c1', delta: 'ln"}' };
          yield { type: 'tool-call', toolCallId: 'c1', toolName: 'weather', input: {} };
          yield { type: 'tool-result', toolCallId: 'c1', output: { rain: true } };
          yield { type: 'source', sourceType: 'url', url: 'https://example.com', title: 'W' };
          yield { type: 'text-delta', id: '2', text: 'Rain.' };
          yield { type: 'finish', finishReason: 'stop', totalUsage: { totalTokens: 3 } };
        })(),
      ),
    );
    return w;
  });
  void one.made.sendMessage({ text: 'weather?' });
  await until(server, () => one.state.status === 'ready' && one.answer().length > 1);
  const { parts, id } = one.state.messages.at(-1) as Shown;
  assert.equal(id, 'r1');
  assert.deepEqual(
    parts.map(({ type, text, input, output, url }) => [type, text ?? input ?? url, output]),
    [
      ['reasoning', 'They want rain.', undefined],
      ['text', 'Let me look.', undefined],
      ['tool-weather', { city: 'Köln' }, { rain: true }],
      ['source-url', 'https://example.com', undefined],
      ['text', 'Rain.', undefined],
    ],
  );
  assert.deepEqual(Object.keys(one.asked[0] as object).sort(), ['id', 'messages', 'trigger']);
  const end = await readStream(server.client(), topic('a')).final();
  assert.deepEqual(end.kind === 'done' && [end.reason, end.usage], ['stop', { totalTokens: 3 }]);
  await server.stop();
});

test('a chat shows the steps, files and approvals of an answer', async () => {
  const server = await new MemoryServer().start();
  const writing = server.client();
  const one = chat(server, 'f', async () => {
    const w = await writeStream(writing, topic('f'), { id: 'r1' });
    void w.pipe(
      fromAISDK(
        (async function* () {
          yield { type: 'start-step' };
          yield { type: 'text-delta', id: '1', text: 'Let me draw.' };
          yield { type: 'finish-step' };
          yield { type: 'start-step' };
          yield { type: 'file', file: { mediaType: 'image/png', base64: 'iVBORw0K' } };
          yield { type: 'tool-call', toolCallId: 'c1', toolName: 'order', input: {} };
          yield { type: 'tool-approval-request', approvalId: 'a1', toolCall: { toolCallId: 'c1' } };
          yield { type: 'finish', finishReason: 'tool-calls', totalUsage: {} };
        })(),
      ),
    );
    return w;
  });
  void one.made.sendMessage({ text: 'order!' });
  await until(server, () => one.state.status === 'ready' && one.answer().length > 1);
  assert.deepEqual(
    one
      .answer()
      .map(({ type, text, url, state, approval }) => [type, text ?? url ?? state, approval]),
    [
      ['text', 'Let me draw.', undefined],
      ['step-start', undefined, undefined],
      ['file', 'data:image/png;base64,iVBORw0K', undefined],
      ['tool-order', 'approval-requested', { id: 'a1' }],
    ],
  );
  await server.stop();
});

test('tool calls whose arguments alternate are whole in a chat', async () => {
  const server = await new MemoryServer().start();
  const writing = server.client();
  const one = chat(server, 'i', async () => {
    const w = await writeStream(writing, topic('i'), { id: 'r1' });
    void w.pipe(
      fromAISDK(
        (async function* () {
          yield { type: 'tool-input-start', id: 'c1', toolName: 'weather' };
          yield { type: 'tool-input-start', id: 'c2', toolName: 'time' };
          yield { type: 'tool-input-delta', id: 'c1', delta: '{"city": ' };
          yield { type: 'tool-input-delta', id: 'c2', delta: '{"zone": ' };
          yield { type: 'tool-input-delta', id: 'c1', delta: '"Oslo"}' };
          yield { type: 'tool-call', toolCallId: 'c1', toolName: 'weather', input: {} };
          // The result of one call arrives between the arguments of another one.
          yield { type: 'tool-result', toolCallId: 'c1', output: { rain: true } };
          yield { type: 'tool-input-delta', id: 'c2', delta: '"CET"}' };
          yield { type: 'tool-call', toolCallId: 'c2', toolName: 'time', input: {} };
          yield { type: 'finish', finishReason: 'tool-calls', totalUsage: {} };
        })(),
      ),
    );
    return w;
  });
  void one.made.sendMessage({ text: 'weather and time?' });
  await until(server, () => one.state.status === 'ready' && one.answer().length > 1);
  assert.deepEqual(
    one.answer().map(({ type, state, input, output }) => [type, state, input, output]),
    [
      ['tool-weather', 'output-available', { city: 'Oslo' }, { rain: true }],
      ['tool-time', 'input-available', { zone: 'CET' }, undefined],
    ],
  );
  await server.stop();
});

test('a chat that resumes shows the answer from its beginning, and can stop it', async () => {
  const server = await new MemoryServer().start();
  const writer = await writeStream(server.client(), topic('b'), { id: 'r1' });
  await writer.write('The first half, ');
  await server.clock.advance(500);
  const one = chat(server, 'b', async () => writer);
  const resuming = one.made.resumeStream();
  await until(server, () => one.answer()[0]?.text === 'The first half, ');
  await writer.write('and more.');
  await until(server, () => one.answer()[0]?.text === 'The first half, and more.');
  assert.equal(one.state.status, 'streaming');
  await one.made.stop();
  await until(server, () => writer.signal.aborted);
  await resuming;
  const reading = readStream(server.client(), topic('b')).final();
  await server.clock.advance(500);
  const end = await reading;
  assert.deepEqual([end.kind, end.text], ['aborted', 'The first half, and more.']);
  await server.stop();
});

test('stop() before the first frame ends an answer that begins later', async () => {
  const server = await new MemoryServer().start();
  const one = chat(server, 'e', async () => ({ id: 'r1' }) as StreamWriter);
  void one.made.sendMessage({ text: 'Hi' });
  await server.clock.advance(1_000);
  assert.equal(one.state.status, 'submitted');
  void one.made.stop();
  await until(server, () => one.state.status === 'ready');
  const writer = await writeStream(server.client(), topic('e'), { id: 'r1' });
  await until(server, () => writer.signal.aborted);
  await server.stop();
});

test('stop() before the route has answered ends the answer', async () => {
  const server = await new MemoryServer().start();
  let answer = (_: StreamWriter): void => {};
  const one = chat(
    server,
    'i',
    () =>
      new Promise((resolve) => {
        answer = resolve;
      }),
  );
  void one.made.sendMessage({ text: 'Hi' });
  await server.clock.advance(100);
  void one.made.stop();
  await until(server, () => one.state.status === 'ready');
  const writer = await writeStream(server.client(), topic('i'));
  answer(writer);
  await until(server, () => writer.signal.aborted);
  assert.deepEqual([one.state.status, one.state.error], ['ready', undefined]);
  await server.stop();
});

test('an answer that never begins after stop() leaves no subscription', async () => {
  const server = await new MemoryServer().start();
  const client = server.client();
  const { _driver: driver } = client as unknown as { readonly _driver: Driver };
  const subscriptions = () => driver._background?.deliveries.inboxes.size;
  const one = chat(server, 'g', async () => ({ id: 'r1' }) as StreamWriter, client);
  void one.made.sendMessage({ text: 'Hi' });
  await server.clock.advance(1_000);
  void one.made.stop();
  await server.clock.advance(300_000);
  assert.equal(subscriptions(), 1);
  await server.clock.advance(60_000);
  assert.equal(subscriptions(), 0);
  await server.stop();
});

test('an answer that never begins is an error of the chat', async () => {
  const server = await new MemoryServer().start();
  const one = chat(server, 'j', async () => ({ id: 'r1' }) as StreamWriter);
  void one.made.sendMessage({ text: 'Hi' });
  await server.clock.advance(300_000);
  assert.equal(one.state.status, 'submitted');
  const unreachable = server.refusing();
  await server.clock.advance(60_000);
  assert.equal(one.state.status, 'submitted', 'it may have begun in the meantime');
  unreachable.end();
  await server.clock.advance(300_000);
  assert.equal(one.state.status, 'error');
  assert.equal((one.state.error as PubSubError).code, 'timeout');
  await server.stop();
});

test('a chat that is resumed again does not stop the answer', async () => {
  const server = await new MemoryServer().start();
  const writer = await writeStream(server.client(), topic('h'), { id: 'r1' });
  await writer.write('On and ');
  await server.clock.advance(500);
  const one = chat(server, 'h', async () => writer);
  // In one turn, as the strict mode of React does, and later.
  void one.made.resumeStream();
  void one.made.resumeStream();
  await until(server, () => one.answer()[0]?.text === 'On and ');
  void one.made.resumeStream();
  await server.clock.advance(1_000);
  await writer.write('on.');
  await until(server, () => one.answer()[0]?.text === 'On and on.');
  assert.equal(one.state.status, 'streaming');
  assert.equal(writer.signal.aborted, false);
  void one.made.stop();
  await until(server, () => writer.signal.aborted);
  await server.stop();
});

test('stop() without permission is an error of the client, and the answer continues', async () => {
  const mayPublish = ({ userId }: { readonly userId: string }): boolean => userId !== 'guest';
  const server = await new MemoryServer({ rules: { mayPublish } }).start();
  const writer = await writeStream(server.client(), topic('f'), { id: 'r1' });
  await writer.write('On ');
  await server.clock.advance(500);
  const client = server.client({ token: server.token('guest') });
  const errors: Error[] = [];
  client.on('error', (error) => void errors.push(error));
  const one = chat(server, 'f', async () => writer, client);
  void one.made.resumeStream();
  await until(server, () => one.state.status === 'streaming');
  void one.made.stop();
  await until(server, () => errors.length > 0);
  assert.deepEqual(
    errors.map((error) => [error.name, (error as PubSubError).topic]),
    [['PermissionDenied', topic('f')]],
  );
  assert.equal(writer.signal.aborted, false);
  await server.stop();
});

test('a chat that unmounts does not stop the answer', async () => {
  const server = await new MemoryServer().start();
  const writer = await writeStream(server.client(), topic('c'), { id: 'r1' });
  await writer.write('On and on.');
  await server.clock.advance(500);
  const { transport } = chat(server, 'c', async () => writer);
  const asked = transport.reconnectToStream({ chatId: 'c' });
  await server.clock.advance(500);
  const stream = await asked;
  await stream?.cancel();
  await server.clock.advance(500);
  assert.equal(writer.signal.aborted, false);
  const ending = writer.complete();
  await server.clock.advance(500);
  await ending;
  const later = transport.reconnectToStream({ chatId: 'c' });
  await server.clock.advance(500);
  assert.equal(await later, null);
  await server.stop();
});

test('a route without a stream id is an error with a remedy', async () => {
  const server = await new MemoryServer().start();
  const transport = new HanzoChatTransport({
    client: server.client(),
    topic,
    fetch: async () => Response.json({}),
  });
  const request = { chatId: 'd', messages: [], trigger: 'submit-message', messageId: undefined };
  await assert.rejects(transport.sendMessages(request), /named no stream.*writer\.id/s);
  await server.stop();
});

test('a tool that fails and the output of a tool as JSON reach a chat', async () => {
  const server = await new MemoryServer().start();
  const one = chat(server, 'c6', async () => {
    const w = await writeStream(server.client(), topic('c6'));
    void w.pipe(
      fromAISDK(
        (async function* () {
          for (const toolCallId of ['c1', 'c2', 'c3'])
            yield { type: 'tool-call', toolCallId, toolName: 'find', input: {} };
          yield { type: 'tool-result', toolCallId: 'c1', output: { at: new Date(0) } };
          yield { type: 'tool-error', toolCallId: 'c2', error: new Error('password') };
          yield { type: 'tool-result', toolCallId: 'c3', output: undefined };
          yield { type: 'finish', finishReason: 'stop' };
        })(),
      ),
    );
    return w;
  });
  void one.made.sendMessage({ text: 'find' });
  await until(server, () => one.state.status === 'ready' && one.answer().length > 2);
  const shown = one.answer().map(({ state, output, errorText }) => ({ state, output, errorText }));
  assert.deepEqual(shown, [
    { state: 'output-available', output: { at: '1970-01-01T00:00:00.000Z' }, errorText: undefined },
    { state: 'output-error', output: undefined, errorText: 'The tool failed.' },
    { state: 'output-available', output: null, errorText: undefined },
  ]);
  await server.stop();
});

test('a tool whose input or output is not JSON is an error with a remedy', async () => {
  for (const [field, event] of [
    ['output', { type: 'tool-result', toolCallId: 'c1', output: { id: 1n } }],
    ['input', { type: 'tool-call', toolCallId: 'c1', toolName: 'find', input: { id: 1n } }],
  ] as const) {
    const source = fromAISDK(
      (async function* () {
        yield event;
      })(),
    );
    await assert.rejects(source[Symbol.asyncIterator]().next(), {
      code: 'invalid_payload',
      field,
      remedy: /bigint/,
    });
  }
});
