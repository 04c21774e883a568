import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import WebSocket from 'ws';

import { type Gap, PermissionDenied, type WebSocketConstructor } from '../../../js/src/index.js';
import { readOptions } from '../../../js/src/settings/read_options.js';
import { EventParser } from '../../../js/src/transports/event_stream.js';
import { SseTransport } from '../../../js/src/transports/sse.js';
import { bounded, deferred, Server, take } from './server.js';
import { VirtualClock } from './virtual.js';

let server: Server;
let service: string;

before(async () => {
  server = await Server.start('--publish-rate-service', '10000', '--history-max-messages', '5000');
  service = server.token('--user', 'worker', '--org', 'acme', '--service');
});
after(() => server.stop());

test('a stream gives the same events however its bytes are split', () => {
  const stream =
    ': hello\r\nevent: a\r\ndata: één\r\ndata:two\r\n\r\nretry: 250\ndata\n\nid: 1\n\n' +
    'event: b\rdata: {"x":1}\r\rdata: unfinished';
  const bytes = new TextEncoder().encode(stream);
  const expected = [
    { event: 'a', data: 'één\ntwo' },
    { event: 'message', data: '' },
    { event: 'b', data: '{"x":1}' },
  ];
  for (let size = 1; size <= bytes.length; size += 1) {
    const parser = new EventParser(1_000);
    const got = [];
    for (let at = 0; at < bytes.length; at += size) {
      got.push(...parser.push(bytes.subarray(at, at + size)));
    }
    assert.deepEqual(got, expected, `portions of ${size}`);
    assert.equal(parser.retry, 250);
  }
  for (const large of ['data: 123456789', 'data: 1\ndata: 2\n\n']) {
    assert.throws(() => new EventParser(8).push(new TextEncoder().encode(large)), RangeError);
  }
});

test('a request that ignores its signal does not end the stream that replaced it', async () => {
  const clock = new VirtualClock();
  const asked: string[] = [];
  const never = new Promise<Response>(() => {});
  const open = new Response(new ReadableStream(), {
    headers: { 'Content-Type': 'text/event-stream' },
  });
  const options = readOptions({
    url: 'http://127.0.0.1:1',
    token: 'x',
    fetch: async (url) => {
      if (String(url).includes('/v1/session')) return Response.json({ client_id: 'c', version: 1 });
      asked.push(String(url));
      return asked.length === 1 ? never : open;
    },
  });
  const transport = new SseTransport(options, clock, () => 0);
  const ends: unknown[] = [];
  transport.open({ opened() {}, frame() {}, ended: (end) => ends.push(end) });
  transport.send([{ type: 'auth', token: 'x', version: 1 }]);
  for (const ref of ['1', '2']) {
    await clock.advance(1);
    transport.send([{ type: 'subscribe', topics: ['a.b'], ref }]);
  }
  await clock.advance(options.openTimeout * 2);
  assert.equal(asked.length, 2);
  assert.deepEqual(ends, []);
  transport.close();
});

test('a request that reaches the server after its successor is not reported', async () => {
  for (const left of [false, true]) {
    const clock = new VirtualClock();
    const bodies: string[] = [];
    const streams: ReadableStreamDefaultController[] = [];
    const options = readOptions({
      url: 'http://127.0.0.1:1',
      token: 'x',
      fetch: async (url, init) => {
        if (String(url).includes('/v1/session'))
          return Response.json({ client_id: 'c', version: 1 });
        bodies.push(String(init?.body));
        if (bodies.length === 1) return new Promise(() => {});
        const body = new ReadableStream({ start: (stream) => void streams.push(stream) });
        return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
      },
    });
    const transport = new SseTransport(options, clock, () => 0);
    const came: unknown[] = [];
    const ends: unknown[] = [];
    transport.open({
      opened() {},
      frame: (read) => came.push(read),
      ended: (end) => ends.push(end),
    });
    transport.send([{ type: 'auth', token: 'x', version: 1 }]);
    await clock.advance(1);
    transport.send([{ type: 'subscribe', topics: ['a'], ref: '1' }]);
    await clock.advance(1);
    if (left) transport.send([{ type: 'unsubscribe', topics: ['a'] }]);
    await clock.advance(1);
    transport.send([{ type: 'subscribe', topics: ['a', 'b'], ref: '2' }]);
    await clock.advance(1);
    came.length = 0;
    const replace = async (): Promise<void> => {
      const event = 'event: error\ndata: {"code":"replaced","message":"by another one"}\n\n';
      streams.at(-1)?.enqueue(new TextEncoder().encode(event));
      streams.at(-1)?.close();
      await clock.advance(1);
    };
    await replace();
    assert.deepEqual([came, ends, bodies.length], [[], [], 3]);
    assert.equal(bodies[2], bodies[1]);
    // This one is by another client.
    await replace();
    assert.deepEqual(came, [{ type: 'error', code: 'replaced', message: 'by another one' }]);
    assert.equal(ends.length, 1);
    transport.close();
  }
});

test('a request after a rejected one reports that another client replaced it', async () => {
  for (const status of [401, 403]) {
    const clock = new VirtualClock();
    let asked = 0;
    const options = readOptions({
      url: 'http://127.0.0.1:1',
      token: 'x',
      fetch: async (url) => {
        if (String(url).includes('/v1/session'))
          return Response.json({ client_id: 'c', version: 1 });
        asked += 1;
        if (asked === 1) return Response.json({ code: 'rejected' }, { status });
        const event = 'event: error\ndata: {"code":"replaced","message":"by another one"}\n\n';
        return new Response(event, { headers: { 'Content-Type': 'text/event-stream' } });
      },
    });
    const transport = new SseTransport(options, clock, () => 0);
    const came: unknown[] = [];
    transport.open({ opened() {}, frame: (read) => came.push(read), ended() {} });
    transport.send([{ type: 'auth', token: 'x', version: 1 }]);
    await clock.advance(1);
    transport.send([{ type: 'subscribe', topics: ['a'], ref: '1' }]);
    await clock.advance(1);
    came.length = 0;
    transport.send([{ type: 'subscribe', topics: ['b'], ref: '2' }]);
    await clock.advance(1);
    assert.deepEqual(came, [{ type: 'error', code: 'replaced', message: 'by another one' }]);
    assert.equal(asked, 2);
    transport.close();
  }
});

test('an error does not quote the token that a gateway echoes', async () => {
  const clock = new VirtualClock();
  const options = readOptions({
    url: 'http://127.0.0.1:1',
    token: 'a-very-secret-token',
    fetch: async (url, init) => {
      if (String(url).includes('/v1/session')) return Response.json({ client_id: 'c', version: 1 });
      const header = new Headers(init?.headers).get('Authorization');
      return Response.json({ message: `${header} may not read` }, { status: 403 });
    },
  });
  const transport = new SseTransport(options, clock, () => 0);
  const frames: unknown[] = [];
  transport.open({ opened() {}, frame: (frame) => frames.push(frame), ended() {} });
  transport.send([{ type: 'auth', token: options.token as string, version: 1 }]);
  await clock.advance(1);
  transport.send([{ type: 'subscribe', topics: ['a.b'], ref: '1' }]);
  await clock.advance(1);
  transport.close();
  assert.match(JSON.stringify(frames), /Bearer \[token\] may not read/);
  assert.doesNotMatch(JSON.stringify(frames), /secret/);
});

test('streams that the server ends before they are replaced are not kept', async () => {
  const clock = new VirtualClock();
  const signals: AbortSignal[] = [];
  const answers: ((response: Response) => void)[] = [];
  const streams: ReadableStreamDefaultController[] = [];
  const options = readOptions({
    url: 'http://127.0.0.1:1',
    token: 'x',
    fetch: async (url, init) => {
      if (String(url).includes('/v1/session')) return Response.json({ client_id: 'c', version: 1 });
      if (init?.signal) signals.push(init.signal);
      return new Promise((answer) => answers.push(answer));
    },
  });
  const transport = new SseTransport(options, clock, () => 0);
  const ends: unknown[] = [];
  transport.open({ opened() {}, frame() {}, ended: (end) => ends.push(end) });
  transport.send([{ type: 'auth', token: 'x', version: 1 }]);
  for (const ref of ['0', '1', '2', '3']) {
    await clock.advance(1);
    transport.send([{ type: 'subscribe', topics: [`a.${ref}`], ref }]);
    await clock.advance(1);
    // The server ends the previous stream, then opens this one.
    streams.at(-1)?.close();
    await clock.advance(1);
    const body = new ReadableStream({ start: (stream) => void streams.push(stream) });
    answers.at(-1)?.(new Response(body, { headers: { 'Content-Type': 'text/event-stream' } }));
    await clock.advance(1);
  }
  assert.deepEqual(
    signals.map(({ aborted }) => aborted),
    [true, true, true, false],
  );
  assert.deepEqual(ends, []);
  transport.close();
});

test('a stream that ends with its token rejects the token, unless it is being replaced', async () => {
  const clock = new VirtualClock();
  const streams: ReadableStreamDefaultController[] = [];
  let openings = deferred<void>();
  openings.resolve();
  const options = readOptions({
    url: 'http://127.0.0.1:1',
    token: 'x',
    fetch: async (url) => {
      if (String(url).includes('/v1/session')) return Response.json({ client_id: 'c', version: 1 });
      await openings.promise;
      const body = new ReadableStream({ start: (stream) => void streams.push(stream) });
      return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
    },
  });
  const transport = new SseTransport(options, clock, () => 0);
  const came: unknown[] = [];
  const ends: unknown[] = [];
  const frame = (read: object): unknown => came.push(read);
  transport.open({ opened() {}, frame, ended: (end) => ends.push(end) });
  transport.send([{ type: 'auth', token: 'x', version: 1 }]);
  await clock.advance(1);
  const expire = async (): Promise<void> => {
    const event = 'event: error\ndata: {"code":"token_expired","message":"too old"}\n\n';
    streams.at(-1)?.enqueue(new TextEncoder().encode(event));
    streams.at(-1)?.close();
    await clock.advance(1);
  };
  transport.send([{ type: 'subscribe', topics: ['a'], ref: '1' }]);
  await clock.advance(1);
  openings = deferred();
  transport.send([{ type: 'subscribe', topics: ['b'], ref: '2' }]);
  await clock.advance(1);
  came.length = 0;
  await expire();
  openings.resolve();
  await clock.advance(1);
  assert.equal(streams.length, 2);
  assert.deepEqual([came, ends], [[], []]);
  await expire();
  assert.deepEqual(came, [{ type: 'auth.error', code: 'token_expired', message: 'too old' }]);
  transport.close();
});

test('everything works over an event stream alone', async () => {
  const ps = server.client({ token: service, transport: 'sse' });
  const one = await ps.subscribe('demo.sse.one');
  const two = await ps.subscribe('demo.sse.*');
  const done = await ps.publish('demo.sse.one', { data: 1 });
  const results = await ps.publishMany([
    ['demo.sse.one', { data: 2 }],
    ['demo.sse.two', { data: 3 }],
  ]);
  assert.equal(results.length, 2);
  assert.deepEqual(
    (await take(one, 2)).map(({ data }) => data),
    [1, 2],
  );
  assert.deepEqual(
    (await take(two, 3)).map(({ data }) => data),
    [1, 2, 3],
  );
  const later = await ps.subscribe('demo.sse.one', { after: { 'demo.sse.one': done.seq ?? 0 } });
  assert.deepEqual(
    (await take(later, 1)).map(({ data }) => data),
    [2],
  );
  await one.unsubscribe();
  await ps.publish('demo.sse.two', { data: 4 });
  assert.deepEqual(
    (await take(two, 1)).map(({ data }) => data),
    [4],
  );
  await assert.rejects(
    server.client({ token: server.token('--user', 'eve'), transport: 'sse' }).subscribe('org.x.y'),
    (error) => error instanceof PermissionDenied && error.message.includes('org.x.y'),
  );
  await ps.close();
});

test('large publishes beside a stream fit into requests that the server accepts', async () => {
  const ps = server.client({ token: service, transport: 'sse', sendQueue: { bytes: 1 << 25 } });
  await ps.connect();
  const data = 'x'.repeat(60_000);
  const done = Array.from({ length: 200 }, () => ps.publish('demo.large', { data }));
  const results = await Promise.allSettled(done);
  assert.deepEqual(
    results.filter(({ status }) => status === 'rejected'),
    [],
  );
  await ps.close();
});

test('a stream that is cut ten times loses nothing and repeats nothing', async () => {
  const publisher = server.client({ token: service });
  const claims = ['--user', 'reader', '--org', 'acme', '--service'];
  const reader = server.client({ token: server.token(...claims), transport: 'sse' });
  const gaps: Gap[] = [];
  reader.on('gap', (gap) => gaps.push(gap));
  const sub = await reader.subscribe('demo.cuts');
  const states = reader.states();
  const got: unknown[] = [];
  for (let cut = 0; cut < 10; cut += 1) {
    const sent = Array.from({ length: 49 }, (_, n) =>
      publisher.publish('demo.cuts', { data: 50 * cut + n }),
    );
    await sent[25];
    await server.fault({ fault: 'drop', user: 'reader' });
    for (let to: string | undefined; to !== 'connected'; ) {
      to = (await bounded(states.next(), 'the next connection')).value?.to;
    }
    await bounded(Promise.all(sent), 'every answer');
    // A client is connected before its stream is open, so wait for a message over the stream.
    await publisher.publish('demo.cuts', { data: 50 * cut + 49 });
    got.push(...(await take(sub, 50)).map(({ data }) => data));
  }
  assert.deepEqual(
    got,
    Array.from({ length: 500 }, (_, n) => n),
  );
  assert.deepEqual(gaps, []);
  await Promise.all([reader.close(), publisher.close()]);
});

test('if no WebSocket can be opened, the client falls back to an event stream', async () => {
  class Blocked extends WebSocket {
    constructor(url: string) {
      super(url.replace('/ws', '/nothing-here'));
    }
  }
  const ps = server.client({
    token: service,
    WebSocket: Blocked as unknown as WebSocketConstructor,
  });
  const seen = deferred<unknown>();
  await ps.subscribe('demo.blocked', { onMessage: ({ data }) => seen.resolve(data) });
  await ps.publish('demo.blocked', { data: 'through' });
  assert.equal(await bounded(seen.promise, 'the message'), 'through');
  await ps.close();
});

test('on an event stream, presence uses the id that the client has since it connected', async () => {
  const ps = server.client({ token: service, transport: 'sse' });
  const ids: (string | undefined)[] = [];
  ps.on('state', ({ to }) => {
    if (to === 'connected') ids.push(ps.clientId);
  });
  const seen = deferred<readonly string[]>();
  const onPresence = (members: readonly { client_id: string }[]): void => {
    if (members.length) seen.resolve(members.map(({ client_id }) => client_id));
  };
  const sub = await ps.subscribe('demo.who', { onPresence });
  assert.deepEqual(await bounded(seen.promise, 'the members'), [ps.clientId]);
  assert.deepEqual(ids, [ps.clientId]);
  await sub.unsubscribe();
  await ps.close();
});

test('a site with neither sessions nor streams is not treated as a plain peer', async () => {
  const restUrl = new URL('/', server.ws.replace(/^ws/, 'http')).href;
  const ps = server.client({ token: service, transport: 'sse', restUrl });
  const output = deferred<string>();
  const states: string[] = [];
  ps.on('state', ({ to, reason }) => {
    states.push(to);
    if (reason.includes('/v1/subscribe')) output.resolve(reason);
  });
  const opening = ps.connect().catch(() => {});
  assert.match(
    await bounded(output.promise, 'the end of the transport'),
    /answered GET \/v1\/subscribe with HTTP \d+ and .*check `restUrl`/,
  );
  assert.ok(!states.includes('connected'));
  await ps.close();
  await opening;
});
