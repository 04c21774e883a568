import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { fromAISDK } from '../../../js/src/ai-sdk/index.js';
import { PayloadTooLarge } from '../../../js/src/errors.js';
import {
  fromAnthropic,
  fromOpenAI,
  ModelError,
  type ModelSource,
} from '../../../js/src/models/index.js';
import { type Part, readStream, writeStream } from '../../../js/src/streams/index.js';
import { MemoryServer } from '../../../js/src/testing/index.js';
import { load, SPEC } from '../files.js';

// tests/types checks the types against these packages, which fail the checks of this folder.
const { default: OpenAI } = await import('openai' as string);
const { default: Anthropic } = await import('@anthropic-ai/sdk' as string);
const { jsonSchema, stepCountIs, streamText, tool } = await import('ai' as string);
const { MockLanguageModelV3, simulateReadableStream } = await import('ai/test' as string);

interface Recorded {
  readonly parts: readonly Part[];
  readonly finish_reason: string;
  readonly tokens: number;
}

const TOPIC = 'chat.session.abc';
const EXPECTED = load<Record<string, Recorded>>('models', 'expected.json');
const ASKED = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'weather?' }] };

/** Options of a client that receives a recorded answer. */
const recorded = (name: string, share = 1) => ({
  apiKey: 'k',
  baseURL: 'http://model.test',
  fetch: async () =>
    new Response(beginning(name, share), { headers: { 'content-type': 'text/event-stream' } }),
});

/** A share of the events of a recorded answer. */
function beginning(name: string, share: number): string {
  const events = readFileSync(join(SPEC, 'models', `${name}.sse`), 'utf8').split(/(?<=\n\n)/);
  return events.slice(0, events.length * share).join('');
}

type Source = (name: string, share?: number) => Promise<ModelSource>;

const openAIChat: Source = async (name, share) =>
  fromOpenAI(
    await new OpenAI(recorded(name, share)).chat.completions.create({ ...ASKED, stream: true }),
  );

const SOURCES: Readonly<Record<string, Source>> = {
  'openai-chat': openAIChat,
  'openai-chat-one-index': openAIChat,
  'openai-responses': async (name, share) =>
    fromOpenAI(
      await new OpenAI(recorded(name, share)).responses.create({
        model: 'm',
        input: '?',
        stream: true,
      }),
    ),
  anthropic: async (name, share) =>
    fromAnthropic(
      await new Anthropic(recorded(name, share)).messages.create({ ...ASKED, stream: true }),
    ),
  'the helper of anthropic': async () =>
    fromAnthropic(new Anthropic(recorded('anthropic')).messages.stream(ASKED)),
};

/** Publishes the pieces of a source, and reads the result. */
async function published(source: ModelSource) {
  const server = await new MemoryServer().start();
  const writing = writeStream(server.client(), TOPIC, { id: 'r1', window: 0 });
  const reading = writing.then(async (w) => {
    await w.pipe(source);
    return readStream(server.client(), TOPIC, { id: 'r1' }).final();
  });
  const ended = reading.then(
    () => true,
    () => true,
  );
  for (let isOver = false; !isOver; )
    isOver = await Promise.race([ended, server.clock.advance(20).then(() => false)]);
  await server.stop();
  return reading;
}

for (const [name, source] of Object.entries(SOURCES))
  test(`the answer of a model is published part by part: ${name}`, async () => {
    const { parts, finish_reason, tokens } = EXPECTED[name] ?? (EXPECTED['anthropic'] as Recorded);
    const final = await published(await source(name));
    assert.deepEqual([final.kind, final.parts], ['done', parts]);
    const { reason, usage } = final as { reason?: string; usage?: Record<string, unknown> };
    assert.equal(reason, finish_reason);
    assert.equal(usage?.['output_tokens'] ?? usage?.['completion_tokens'], tokens);
  });

for (const name of Object.keys(EXPECTED))
  test(`the answer of a model whose stream is cut is aborted: ${name}`, async () => {
    await assert.rejects(published(await (SOURCES[name] as Source)(name, 0.5)), ModelError);
  });

test("the stream of the AI SDK's streamText is published part by part", async () => {
  const total = { total: 7, noCache: 7, cacheRead: 0, cacheWrite: 0 };
  const chunks = [
    { type: 'stream-start', warnings: [] },
    { type: 'reasoning-start', id: '0' },
    { type: 'reasoning-delta', id: '0', delta: 'They want ' },
    { type: 'reasoning-delta', id: '0', delta: 'the weather.' },
    { type: 'reasoning-end', id: '0' },
    { type: 'text-start', id: '1' },
    { type: 'text-delta', id: '1', delta: 'Let me look 👩‍👧. ' },
    { type: 'text-end', id: '1' },
    { type: 'source', sourceType: 'url', id: 's', url: 'https://example.com/w', title: 'Weather' },
    { type: 'tool-input-start', id: 'call_1', toolName: 'weather' },
    { type: 'tool-input-delta', id: 'call_1', delta: '{"city": "Kö' },
    { type: 'tool-input-delta', id: 'call_1', delta: 'ln"}' },
    { type: 'tool-input-end', id: 'call_1' },
    {
      type: 'finish',
      finishReason: { unified: 'tool-calls', raw: 'tool_use' },
      usage: { inputTokens: total, outputTokens: { total: 12, text: 12, reasoning: 0 } },
    },
  ];
  const model = new MockLanguageModelV3({
    doStream: async () => ({
      stream: simulateReadableStream({ chunks, initialDelayInMs: null, chunkDelayInMs: null }),
    }),
  });
  const final = await published(fromAISDK(streamText({ model, prompt: 'weather?' }).fullStream));
  assert.deepEqual(final.parts, EXPECTED['anthropic']?.parts);
  const { reason, usage } = final as { reason?: string; usage?: Record<string, unknown> };
  assert.deepEqual([reason, usage?.['outputTokens']], ['tool-calls', 12]);
});

const TOKENS = { total: 7, noCache: 7, cacheRead: 0, cacheWrite: 0 };
const finish = (unified: string) => ({
  type: 'finish',
  finishReason: { unified, raw: unified },
  usage: { inputTokens: TOKENS, outputTokens: { total: 12, text: 12, reasoning: 0 } },
});
const called = (id: string, toolName: string) => ({
  type: 'tool-call',
  toolCallId: id,
  toolName,
  input: '{"city":"Ulm"}',
});

/** A model of the AI SDK whose steps give these chunks. */
function stepping(...steps: readonly object[][]): unknown {
  const left = [...steps];
  return new MockLanguageModelV3({
    doStream: async () => ({
      stream: simulateReadableStream({
        chunks: [{ type: 'stream-start', warnings: [] }, ...(left.shift() ?? [])],
        initialDelayInMs: null,
        chunkDelayInMs: null,
      }),
    }),
  });
}

const inputSchema = jsonSchema({ type: 'object', properties: { city: { type: 'string' } } });
const TOOLS = {
  weather: tool({ inputSchema, execute: async () => ({ rain: true }) }),
  order: tool({ inputSchema, needsApproval: true, execute: async () => 'ordered' }),
};

test("the steps, approvals and files of the AI SDK's streamText are published", async () => {
  const model = stepping(
    [called('c1', 'weather'), finish('tool-calls')],
    [
      { type: 'file', mediaType: 'image/png', data: 'iVBORw0K' },
      called('c2', 'order'),
      finish('tool-calls'),
    ],
  );
  const { fullStream } = streamText({
    model,
    prompt: 'weather?',
    tools: TOOLS,
    stopWhen: stepCountIs(3),
  });
  const { parts } = await published(fromAISDK(fullStream));
  const approvalId = parts.at(-1)?.['approvalId'];
  assert.equal(typeof approvalId, 'string');
  const text = '{"city":"Ulm"}';
  assert.deepEqual(parts, [
    { type: 'tool-call', id: 'c1', name: 'weather', text },
    { type: 'tool-result', id: 'c1', output: { rain: true } },
    { type: 'step' },
    { type: 'file', url: 'data:image/png;base64,iVBORw0K', mediaType: 'image/png' },
    { type: 'tool-call', id: 'c2', name: 'order', text },
    { type: 'tool-approval-request', id: 'c2', approvalId },
  ]);
});

test('a file of the AI SDK is stored where the program wants it, or must be small', async () => {
  const data = 'A'.repeat(80_000);
  const file = { type: 'file', mediaType: 'image/png', data };
  const stream = () =>
    streamText({ model: stepping([file, finish('stop')]), prompt: 'draw!' }).fullStream;
  const stored: string[] = [];
  const fileUrl = async ({ base64 }: { readonly base64: string }): Promise<string> => {
    stored.push(base64);
    return 'https://example.com/1.png';
  };
  const { parts } = await published(fromAISDK(stream(), { fileUrl }));
  assert.deepEqual(parts, [
    { type: 'file', url: 'https://example.com/1.png', mediaType: 'image/png' },
  ]);
  assert.deepEqual(stored, [data]);
  await assert.rejects(published(fromAISDK(stream())), (error) => {
    assert.ok(error instanceof PayloadTooLarge);
    assert.match(error.remedy, /`fileUrl`/);
    return true;
  });
});

test('a call that the user denies is published as a denied result', async () => {
  const approval = { type: 'tool-approval-request', approvalId: 'a1', toolCallId: 'c2' };
  const denied = { type: 'tool-approval-response', approvalId: 'a1', approved: false };
  const input = { city: 'Ulm' };
  const messages = [
    { role: 'user', content: 'order!' },
    {
      role: 'assistant',
      content: [{ type: 'tool-call', toolCallId: 'c2', toolName: 'order', input }, approval],
    },
    { role: 'tool', content: [denied] },
  ];
  const model = stepping([
    { type: 'text-start', id: '1' },
    { type: 'text-delta', id: '1', delta: 'Not ordered.' },
    { type: 'text-end', id: '1' },
    finish('stop'),
  ]);
  const { fullStream } = streamText({ model, messages, tools: TOOLS });
  const { parts } = await published(fromAISDK(fullStream));
  assert.deepEqual(parts, [
    { type: 'tool-result', id: 'c2', denied: true },
    { type: 'text', text: 'Not ordered.' },
  ]);
});

test('a model that fails during an answer aborts the stream, and its request ends', async () => {
  const controller = new AbortController();
  async function* events() {
    yield { type: 'response.output_text.delta', delta: 'Let me ' };
    yield { type: 'error', message: 'The model is overloaded.' };
  }
  const stream = Object.assign(events(), { controller });
  const server = await new MemoryServer().start();
  const writer = await writeStream(server.client(), TOPIC, { id: 'r1', window: 0 });
  const piping = assert.rejects(
    writer.pipe(fromOpenAI(stream)),
    (error) => error instanceof ModelError && error.message === 'The model is overloaded.',
  );
  await server.clock.advance(500);
  await piping;
  assert.equal(controller.signal.aborted, true);
  const reading = readStream(server.client(), TOPIC, { id: 'r1' }).final();
  await server.clock.advance(500);
  const { kind, text } = await reading;
  assert.deepEqual([kind, text], ['aborted', 'Let me ']);
  await server.stop();
});

test('a cancelled stream ends the request of the model while it awaits an event', async () => {
  let asked: AbortSignal | undefined;
  const event = { type: 'response.output_text.delta', delta: 'on ' };
  const openai = new OpenAI({
    ...recorded(''),
    fetch: async (_: unknown, { signal }: { signal: AbortSignal }) => {
      asked = signal;
      const body = new ReadableStream({
        start: (stream) =>
          stream.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\n`)),
      });
      return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    },
  });
  const server = await new MemoryServer().start();
  const writer = await writeStream(server.client(), TOPIC, { id: 'r1', window: 0 });
  const answer = await openai.responses.create({ model: 'm', input: '?', stream: true });
  const piping = assert.rejects(writer.pipe(fromOpenAI(answer)), { code: 'cancelled' });
  for (let n = 0; writer.text !== 'on ' && n < 1_000; n += 1) await server.clock.advance(20);
  assert.equal(asked?.aborted, false);
  const cancelling = writer.cancel('user');
  await server.clock.advance(500);
  await Promise.all([cancelling, piping]);
  assert.equal(asked?.aborted, true);
  await server.stop();
});
