import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { ClientFrame, ServerFrame } from '../../../js/src/generated/wire.js';
import { readOptions } from '../../../js/src/settings/read_options.js';
import { SseTransport } from '../../../js/src/transports/sse.js';
import type { TransportEnd } from '../../../js/src/transports/transport.js';
import { turns, VirtualClock } from './virtual.js';

const INFO = { client_id: 'request', version: 1, features: ['ref', 'ack'], server_time: 1_000 };
const TOPICS = { type: 'subscribe', topics: ['a'], ref: '7' } as const;

type Answer = (path: string, init: RequestInit) => Response | Promise<Response>;

/** An event-stream transport with a server that gives custom answers. */
async function stream(answer: Answer, ...frames: ClientFrame[]) {
  const asked: string[] = [];
  const received: ServerFrame[] = [];
  const ends: TransportEnd[] = [];
  const clock = new VirtualClock();
  const options = readOptions({
    url: 'http://127.0.0.1:9',
    token: 'x',
    fetch: async (input, init = {}) => {
      const { pathname } = new URL(String(input));
      asked.push(pathname);
      return answer(pathname, init);
    },
  });
  const transport = new SseTransport(options, clock, () => 0);
  transport.open({
    opened: () => {},
    frame: (read) => received.push(read as ServerFrame),
    ended: (end) => ends.push(end),
  });
  transport.send([{ type: 'auth', token: 'x', ref: '1' }]);
  await turns();
  transport.send(frames);
  await turns();
  return { transport, clock, asked, received, ends };
}

function problem(status: number, fields: object): Response {
  const headers = { 'Content-Type': 'application/problem+json', 'Retry-After': '3' };
  return new Response(JSON.stringify(fields), { status, headers });
}

/** An event stream as the response, if the path requests one. */
function events(headers: HeadersInit = {}): Response {
  const open = new ReadableStream({ start() {} });
  return new Response(open, { headers: { 'Content-Type': 'text/event-stream', ...headers } });
}

test('an event stream returns the client id that others see', async () => {
  const { clock, received, transport } = await stream((path) =>
    path === '/v1/session' ? Response.json(INFO) : events({ 'Client-Id': 'stream' }),
  );
  assert.deepEqual(received, [{ ...INFO, type: 'auth.ok', ref: '1' }]);
  await clock.advance(250);
  transport.send([TOPICS]);
  await turns();
  const again = { ...INFO, type: 'auth.ok', client_id: 'stream', server_time: 1_250 };
  assert.deepEqual(received.slice(1), [again]);
  transport.close();
});

test('a rejected stream reports the error of the server', async () => {
  const output = { code: 'forbidden', detail: 'Rule 7 says no.', remedy: 'Ask Alice.' };
  const { received, ends } = await stream(
    (path) => (path === '/v1/session' ? Response.json(INFO) : problem(403, output)),
    TOPICS,
  );
  const denied = [{ topic: 'a', code: 'forbidden', message: 'Rule 7 says no.' }];
  assert.deepEqual(received.slice(1), [{ type: 'subscribed', topics: [], denied, ref: '7' }]);
  assert.deepEqual(ends, []);
});

test('a stream that cannot be opened ends the transport, with the reason and the time to wait', async () => {
  const output = { code: 'unavailable', detail: 'Draining.' };
  const { ends } = await stream(
    (path) => (path === '/v1/session' ? Response.json(INFO) : problem(503, output)),
    TOPICS,
  );
  const reason = 'The server answered HTTP 503: Draining.';
  assert.deepEqual(ends, [{ code: 1013, reason, retryAfter: 3_000 }]);
});

test('a rejected token is reported with the remedy of the server', async () => {
  const output = { code: 'token_expired', detail: 'It ended at noon.', remedy: 'Wait for one.' };
  const { received } = await stream(() => problem(401, output));
  const error = { code: 'token_expired', message: 'It ended at noon.', remedy: 'Wait for one.' };
  assert.deepEqual(received, [{ type: 'auth.error', ...error, retry_after_ms: 3_000, ref: '1' }]);
});

test('an unsubscribe is answered, and the last one ends the stream', async () => {
  let ended = false;
  const { received, transport } = await stream((path, { signal }) => {
    signal?.addEventListener('abort', () => {
      ended ||= path === '/v1/subscribe';
    });
    return path === '/v1/session' ? Response.json(INFO) : events();
  }, TOPICS);
  transport.send([{ type: 'unsubscribe', topics: ['a'], ref: '8' }]);
  await turns();
  assert.deepEqual(received.slice(1), [{ type: 'unsubscribed', topics: ['a'], ref: '8' }]);
  assert.ok(ended);
});

test('a peer without batches receives single messages, and nulls count as absent', async () => {
  let next = 0;
  const { asked, received } = await stream(
    (path) => {
      if (!path.endsWith('/messages')) return problem(path === '/v1/subscribe' ? 400 : 404, {});
      next += 1;
      return Response.json({ id: `msg_${next}`, timestamp: 5, seq: null, error: null });
    },
    { type: 'publish', message: { topic: 'a', data: 1, id: 'msg_1' }, ref: '2' },
    { type: 'publish', message: { topic: 'b', data: 2, id: 'msg_2' }, ref: '3' },
  );
  assert.deepEqual(received, [
    { type: 'auth.ok', client_id: '', ref: '1' },
    { type: 'published', id: 'msg_1', timestamp: 5, ref: '2' },
    { type: 'published', id: 'msg_2', timestamp: 5, ref: '3' },
  ]);
  assert.deepEqual(asked.slice(2), ['/v1/topics/a/messages', '/v1/topics/b/messages']);
});

test('a peer may answer a publish with the whole message, whose type is that of the program', async () => {
  const { received } = await stream(
    (path, { body }) => {
      if (!path.endsWith('/messages')) return problem(path === '/v1/subscribe' ? 400 : 404, {});
      return Response.json({ ...JSON.parse(String(body)), topic: 'a', timestamp: 5 });
    },
    { type: 'publish', message: { topic: 'a', type: 'greeting', data: 1, id: 'msg_1' }, ref: '2' },
  );
  assert.deepEqual(
    received.map(({ type }) => type),
    ['auth.ok', 'published'],
  );
});

test('an item of a batch may be rejected with a problem, which has a type', async () => {
  const error = { type: 'about:blank', code: 'forbidden', message: 'Rule 7 says no.' };
  const { received } = await stream(
    (path) =>
      Response.json(
        path === '/v1/session'
          ? { ...INFO, features: ['batch'] }
          : { results: [{ error }, { error }] },
      ),
    { type: 'publish', message: { topic: 'a', data: 1, id: 'msg_1' }, ref: '2' },
    { type: 'publish', message: { topic: 'a', data: 2, id: 'msg_2' }, ref: '3' },
  );
  assert.deepEqual(
    received.slice(1).map((frame) => [frame.type, 'code' in frame && frame.code]),
    [
      ['error', 'forbidden'],
      ['error', 'forbidden'],
    ],
  );
});

test('a batch that a peer rejects as unknown is sent as single messages', async () => {
  let next = 0;
  const { asked, received } = await stream(
    (path) => {
      if (path === '/v1/session') return Response.json({ ...INFO, features: ['batch'] });
      if (path === '/v1/messages:batch') return problem(404, {});
      next += 1;
      return Response.json({ id: `msg_${next}`, timestamp: 5 });
    },
    { type: 'publish', message: { topic: 'a', data: 1, id: 'msg_1' }, ref: '2' },
    { type: 'publish', message: { topic: 'a', data: 2, id: 'msg_2' }, ref: '3' },
  );
  assert.deepEqual(
    received.slice(1).map((frame) => 'id' in frame && frame.id),
    ['msg_1', 'msg_2'],
  );
  assert.deepEqual(asked.slice(1, 3), ['/v1/messages:batch', '/v1/topics/a/messages']);
});

test('the session sends the unanswered part of a batch again', async () => {
  const lost = { code: 'timeout', message: 'The log did not answer.' };
  const { received, ends } = await stream(
    (path) =>
      path === '/v1/session'
        ? Response.json({ ...INFO, features: ['batch'] })
        : Response.json({ results: [{ id: 'msg_1', timestamp: 5 }, { error: lost }] }),
    { type: 'publish', message: { topic: 'a', data: 1, id: 'msg_1' }, ref: '2' },
    { type: 'publish', message: { topic: 'a', data: 2, id: 'msg_2' }, ref: '3' },
  );
  assert.deepEqual(received.slice(1), [{ type: 'published', id: 'msg_1', timestamp: 5, ref: '2' }]);
  assert.deepEqual(
    ends.map(({ reason }) => reason),
    ['A part of a batch got no answer.'],
  );
});
