/** Errors: class, code, reason and remedy. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';

import {
  AuthError,
  AuthRefused,
  ConnectionFailed,
  InvalidOption,
  NotFound,
  OperationTimeout,
  PubSub,
  type PubSubError,
  type PubSubOptions,
  type StateChange,
  type WebSocketConstructor,
} from '../../../js/src/index.js';
import { platform } from '../../../js/src/runtime/environment.js';
import { tokenProblem } from '../../../js/src/runtime/tokens.js';
import { bounded, deferred } from './server.js';
import { CURRENT, turns, virtualClient } from './virtual.js';

const quiet = { warn: () => {}, error: () => {} };

async function received(promise: Promise<unknown>): Promise<PubSubError> {
  return promise.then(
    () => assert.fail('it was not refused'),
    (error: PubSubError) => error,
  );
}

test('iterating a subscription with a handler is a usage error', async () => {
  const { ps } = virtualClient();
  const sub = await ps.subscribe('a.b', { onMessage: () => {} });
  assert.throws(() => sub[Symbol.asyncIterator](), { code: 'usage' });
  await ps.close();
});

test('a subscription can be written as JSON, without its messages', async () => {
  const { ps, peer } = virtualClient();
  const sub = await ps.subscribe('a.b');
  peer.socket.receive(peer.message('a.b', 'a secret'));
  await turns();
  assert.deepEqual(JSON.parse(JSON.stringify(sub)), sub.stats);
  assert.equal(sub.stats.queued, 1);
  assert.doesNotMatch(JSON.stringify([sub, ps]), /secret/);
  await ps.close();
});

test('a client without a token reports what the callback threw', async () => {
  const thrown = new TypeError('a secret');
  const { ps, clock } = virtualClient({
    getToken: () => {
      throw thrown;
    },
  });
  const late = received(ps.connect({ timeout: 2_000 }));
  await clock.advance(2_001);
  const error = await late;
  assert.ok(error instanceof AuthError);
  assert.equal(error.code, 'token_unavailable');
  assert.match(
    error.message,
    /^Not connected within 2000 ms: getToken threw TypeError at .*words\.test\.[jt]s:\d+:\d+\)? \(/,
  );
  assert.match(error.remedy, /callback/);
  assert.equal(error.cause, thrown);
  await ps.close({ timeout: 0 });
});

test('a callback that fails again and again is reported once per cause', async () => {
  const logged: string[] = [];
  const logger = { warn: () => {}, error: (text: string) => logged.push(text) };
  const again = new TypeError('a secret');
  const later = new RangeError();
  const thrown = [again, again, new TypeError(), later, undefined, later];
  let calls = 0;
  const { ps, clock } = virtualClient({
    logger,
    getToken: () => {
      const error = thrown[Math.min(calls, thrown.length - 1)];
      calls += 1;
      if (error) throw error;
      return { value: 'token', expiresAt: clock.wallMs() + 60_000 };
    },
  });
  ps.connect().catch(() => {});
  for (let n = 0; n < 1_000 && calls <= thrown.length + 1; n += 1) await clock.advance(1_000);
  const classes = logged.map((text) => text.match(/threw (\w+)/)?.[1]);
  assert.deepEqual(classes, ['TypeError', 'TypeError', 'RangeError', 'RangeError']);
  await ps.close({ timeout: 0 });
});

test('the position of an error is its first frame, and never its text', () => {
  const problem = (stack: unknown): string =>
    tokenProblem(Object.assign(new TypeError('secret'), { stack }));
  const file = 'http://localhost:5173/src/token.ts:12:5';
  const [v8, another] = [
    `TypeError: a secret@host:10:11\n    at getToken (${file})\n    at ask (http://localhost/c.js:1:2)`,
    `getToken@${file}\nask@http://localhost/c.js:1:2\n`,
  ];
  assert.equal(problem(v8), `getToken threw TypeError at getToken (${file}).`);
  const lines = v8?.replace(/secret.*/, 'secret:\n    at the secret\nuser@secret');
  assert.equal(problem(lines), `getToken threw TypeError at getToken (${file}).`);
  const alike = new Error(
    'rejected:\n    at https://idp:443/?secret=s3cret\nuser:s3cret@db:5432/s3cret',
  );
  assert.match(tokenProblem(alike), /^getToken threw Error at .*words\.test\.[jt]s:\d+:\d+\)?\.$/);
  assert.equal(problem(another), `getToken threw TypeError at ${file}.`);
  assert.equal(problem(`@${file}\n`), `getToken threw TypeError at ${file}.`);
  const vite = 'http://localhost:5173/@fs/src/token.ts:12:5';
  assert.equal(problem(`getToken@${vite}\n`), `getToken threw TypeError at ${vite}.`);
  for (const without of ['TypeError: a secret at host', '', undefined, 7])
    assert.equal(problem(without), 'getToken threw TypeError.');
});

test('a logged state ends with its code or its name', async () => {
  const lines: string[] = [];
  const { ps, peer } = virtualClient({
    logger: { ...quiet, debug: (text: string) => lines.push(text) },
  });
  await ps.connect();
  peer.socket.drop(4500, 'Enough.');
  await turns();
  assert.equal(lines[0], 'initialized -> connecting');
  assert.match(lines.at(-1) ?? '', / 4500$/);
  await ps.close({ timeout: 0 });
});

test('an HTTP request without a token reports what the callback threw', async () => {
  const thrown = new TypeError('a secret');
  const { ps } = virtualClient({
    getToken: () => {
      throw thrown;
    },
  });
  const error = await received(ps.presence('a.b'));
  assert.ok(error instanceof AuthError);
  assert.equal(error.code, 'token_unavailable');
  assert.match(error.message, /getToken threw TypeError/);
  assert.doesNotMatch(error.message, /secret/);
  assert.equal(error.cause, thrown);
  await ps.close({ timeout: 0 });
});

test('a call without a token has the remedy of the callback', async () => {
  const { ps, clock } = virtualClient({
    getToken: () => {
      throw new TypeError();
    },
  });
  const calls = [ps.publish('a.b', { data: 1 }), ps.subscribe('a.b', { onMessage: () => {} })];
  const late = Promise.all(calls.map(received));
  await clock.advance(10_001);
  for (const error of await late) {
    assert.ok(error instanceof OperationTimeout);
    assert.match(error.remedy, /^Fix the callback, or the server that it calls/);
  }
  await ps.close({ timeout: 0 });
});

test('the answer of an endpoint is not a token', async () => {
  const logged: string[] = [];
  const { ps, clock } = virtualClient({
    logger: { warn: () => {}, error: (text: string) => logged.push(text) },
    getToken: async () => JSON.parse('{"token": "ey.."}'),
  });
  const late = received(ps.connect({ timeout: 1_000 }));
  await clock.advance(1_001);
  assert.match((await late).message, /: `getToken\(\)` has no `value` \(/);
  assert.equal(logged.length, 1);
  assert.match(
    logged[0] ?? '',
    /has no `value`\. Return a string, or { value, expiresAt }\. .*#token_unavailable$/,
  );
  await ps.close({ timeout: 0 });
});

test('a mistake that programs for other libraries make has its remedy', async () => {
  const { ps } = virtualClient();
  const { message, field, remedy } = await received(
    Reflect.apply(ps.publishMany, ps, [[{ data: 1 }]]),
  );
  assert.equal(message, 'Item 0: It has no `topic`.');
  assert.equal(field, '[0].topic');
  assert.equal(remedy, 'Give [topic, { type, data }] pairs.');
  assert.throws(() => Reflect.apply(ps.on, ps, ['message', () => {}]), {
    remedy: 'Use one of `state`, `gap`, `error`. For messages, use `subscribe`.',
  });
  await ps.close();
});

test('options of a subscription that are not an object are refused', async () => {
  const { ps } = virtualClient();
  const error = await received(Reflect.apply(ps.subscribe, ps, ['a.b', null]));
  assert.equal(error.message, '`options` is null, not an object.');
  await ps.close();
});

test('a publish without arguments names the topic', async () => {
  const { ps } = virtualClient();
  const error = await received(Reflect.apply(ps.publish, ps, []));
  assert.equal(error.code, 'invalid_topic');
  assert.equal(error.message, 'A topic is a string, not undefined.');
  const { message, field } = await received(Reflect.apply(ps.publishMany, ps, [[undefined]]));
  assert.equal(message, 'Item 0: It is undefined, not a topic with its message.');
  assert.equal(field, '[0]');
  await ps.close();
});

test('an empty batch is published without a connection', async () => {
  const { ps } = virtualClient();
  assert.deepEqual(await ps.publishMany([]), []);
  await assert.rejects(ps.publishMany([], { timeout: 0 }), { field: 'timeout' });
  const reason = new Error('No longer needed.');
  const signal = AbortSignal.abort(reason);
  await assert.rejects(ps.publishMany([], { signal }), reason);
  assert.equal(ps.state, 'initialized');
  await ps.close();
});

test('a pair without a topic is reported with its message, as the message of a call is', async () => {
  const { ps } = virtualClient();
  for (const [message, kind] of [
    ['hello', 'a string'],
    [[1], 'an array'],
  ]) {
    const pairs = [[undefined, message]];
    const error = await received(Reflect.apply(ps.publishMany, ps, [pairs]));
    assert.equal(error.message, `Item 0: The message is ${kind}, not an object.`);
    assert.deepEqual([error.code, error.field], ['invalid_payload', '[0].message']);
  }
  const { message, field } = await received(Reflect.apply(ps.publishMany, ps, [['hello']]));
  const words = 'Item 0: It is a string, not a topic with its message.';
  assert.deepEqual([message, field], [words, '[0]']);
  await ps.close();
});

test('half of a surrogate pair in a field of a message is reported', async () => {
  const { ps } = virtualClient();
  for (const field of ['id', 'type']) {
    const error = await received(ps.publish('a.b', { data: 1, [field]: 'a\ud800' }));
    assert.equal(error.message, `\`${field}\` contains half of a surrogate pair.`);
    assert.equal(error.field, field);
  }
  const error = await received(ps.publish('a.b', { data: 1, id: '' }));
  assert.equal(error.message, '`id` is empty.');
  await ps.close();
});

test('too many types of a subscription are reported with their number', async () => {
  const { ps } = virtualClient();
  const types = Array.from({ length: 1_001 }, (_, n) => `t${n}`);
  const error = await received(ps.subscribe('a.b', { types }));
  assert.equal(error.message, '`types` has 1,001 types; a subscription has at most 1,000.');
  assert.equal(error.field, 'types');
  await ps.close();
});

test('refused options of a subscription are reported before the client connects', async () => {
  const { ps } = virtualClient();
  const refused: readonly [object, field: string][] = [
    [{ types: [] }, 'types'],
    [{ types: ['a', 1] }, 'types'],
    [{ presence: 1 }, 'presence'],
    [{ presence: null }, 'presence'],
    [{ presence: { status: 1n } }, 'presence.status'],
    [{ presence: { status: 'a'.repeat(2 ** 20) } }, 'presence'],
    [{ queue: null }, 'queue'],
    [{ queue: { messages: 0 } }, 'queue.messages'],
  ];
  for (const [options, field] of refused) {
    const error = await received(ps.subscribe('a.b', options));
    assert.equal(error.field, field);
    assert.equal(ps.state, 'initialized', field);
  }
  const { field } = await received(ps.subscribe('a.*', { presence: { status: 'here' } }));
  assert.equal(field, 'presence');
  assert.equal(ps.state, 'initialized');
  await ps.close();
});

test('a message before its topic is reported as swapped', async () => {
  const { ps } = virtualClient();
  const error = await received(Reflect.apply(ps.publish, ps, [{ data: 1 }, 'a.b']));
  assert.equal(error.code, 'invalid_payload');
  assert.equal(error.message, 'The topic and the message are swapped.');
  assert.match(error.remedy, /the topic comes first/);
  const items = [[{ data: 1 }, 'a.b']];
  const { message, field } = await received(Reflect.apply(ps.publishMany, ps, [items]));
  assert.equal(message, 'Item 0: The topic and the message are swapped.');
  assert.equal(field, '[0].message');
  await ps.close();
});

test('the topic, a type and the data as three arguments are not reported as options', async () => {
  const { ps } = virtualClient();
  const error = await received(Reflect.apply(ps.publish, ps, ['a.b', 'token', { text: 'x' }]));
  assert.equal(error.message, 'The message is a string, not an object.');
  assert.equal(error.remedy, 'Publish { type, data }.');
  await ps.close();
});

test('a function as the options of a subscription is reported with the option that takes it', async () => {
  const { ps } = virtualClient();
  const { field, remedy } = await received(Reflect.apply(ps.subscribe, ps, ['a.b', () => {}]));
  assert.equal(field, 'options');
  assert.equal(remedy, 'Pass it as `{ onMessage: … }`.');
  await ps.close();
});

test('a callback that does not return is named in the remedy', async () => {
  const { ps, clock } = virtualClient({
    fetchTimeout: 1_000,
    getToken: () => new Promise(() => {}),
  });
  const calls = [
    ps.connect({ timeout: 1_500 }),
    ps.publish('a.b', { data: 1 }, { timeout: 1_500 }),
    ps.subscribe('a.b', { timeout: 1_500 }),
  ];
  const late = Promise.all(calls.map(received));
  await clock.advance(1_501);
  for (const { message, remedy } of await late) {
    assert.match(message, /token callback did not answer in time/);
    assert.match(remedy, /^Let `getToken` return within `fetchTimeout`/);
  }
  await ps.close({ timeout: 0 });
});

test('an expiry in seconds is not a time in milliseconds', async () => {
  const refused = async (expiresAt: unknown): Promise<string> => {
    const { ps, clock } = virtualClient({ getToken: () => Object({ value: 'x', expiresAt }) });
    const seen: string[] = [];
    ps.on('error', ({ message }) => void seen.push(message));
    const late = received(ps.connect({ timeout: 1_000 }));
    await clock.advance(1_001);
    const { message, cause, remedy } = await late;
    assert.ok(cause instanceof InvalidOption);
    assert.equal(cause.field, 'getToken().expiresAt');
    assert.ok(message.includes(cause.message.slice(0, -1)), message);
    assert.deepEqual(seen, [cause.message]);
    assert.equal(remedy, cause.remedy);
    await ps.close({ timeout: 0 });
    return `${cause.message} ${cause.remedy}`;
  };
  const seconds = Date.UTC(2026, 0, 2) / 1_000;
  assert.equal(
    await refused(seconds),
    '`getToken().expiresAt` is in seconds. Pass milliseconds: multiply it by 1000.',
  );
  for (const wrong of ['2026-01-02', new Date(0), NaN, -1])
    assert.match(await refused(wrong), / not a time\. Pass Unix milliseconds, such as/);
});

test('a missing token is not reported as an exception', async () => {
  const { ps, clock } = virtualClient({ getToken: () => 'two words' });
  const seen: Error[] = [];
  ps.on('error', (error) => void seen.push(error));
  const late = received(ps.connect({ timeout: 1_000 }));
  await clock.advance(1_001);
  const { message } = await late;
  assert.match(message, /: `getToken\(\)` has spaces.* ASCII \(token_unavailable\)\.$/);
  assert.doesNotMatch(message, /threw|\.\./);
  assert.match(seen[0]?.message ?? '', /^`getToken\(\)` has spaces[^.]*\.$/);
  await ps.close({ timeout: 0 });
});

test('a connection that was lost or could not be opened has a code', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  const changes: StateChange[] = [];
  ps.on('state', (change) => void changes.push(change));
  await ps.connect();
  peer.isDown = true;
  peer.socket.drop();
  await clock.advance(5_000);
  const lost = changes.filter(({ to }) => to === 'reconnecting');
  assert.deepEqual(
    [...new Set(lost.map(({ code, reason }) => `${code} ${reason}`))],
    ['1006 The connection was lost.', '1006 localhost cannot be reached.'],
  );
  await ps.close({ timeout: 0 });
});

test('a socket that the page forbids fails at once with the cause, though it never fires `close`', async () => {
  const forbidden = { readyState: 3, addEventListener: () => {}, send: () => {}, close: () => {} };
  const { ps, clock } = virtualClient({
    transport: 'websocket',
    // biome-ignore lint/complexity/useArrowFunction: it is called with `new`
    WebSocket: function () {
      return forbidden;
    } as unknown as WebSocketConstructor,
  });
  const late = [
    ps.connect({ timeout: 300 }),
    ps.subscribe('a.b', { timeout: 300 }),
    ps.publish('a.b', { data: 1 }, { timeout: 300 }),
  ].map(received);
  await clock.advance(1);
  assert.equal(
    ps.lastFailure?.reason,
    'localhost cannot be reached: connect-src of the page forbids it.',
  );
  await clock.advance(300);
  for (const { remedy } of await Promise.all(late))
    assert.match(remedy, /^Add the addresses of `url` and `restUrl` to `connect-src`/);
  await ps.close({ timeout: 0 });
});

/** A client whose platform rejects TLS: with this message for a WebSocket, and this code for HTTP. */
function withoutTls(message: string, code: string): ReturnType<typeof virtualClient> {
  return virtualClient({
    transport: 'websocket',
    restAttempts: 1,
    // biome-ignore lint/complexity/useArrowFunction: it is called with `new`
    WebSocket: function () {
      throw new Error(message);
    } as unknown as WebSocketConstructor,
    fetch: async () => {
      throw new TypeError('fetch failed', { cause: { code } });
    },
  });
}

test('a required client certificate is named with its option, over both transports', async () => {
  const code = 'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED';
  const message = '80:SSL routines:tlsv13 alert certificate required:SSL alert number 116';
  const { ps, clock } = withoutTls(message, code);
  const late = received(ps.connect({ timeout: 300 }));
  await clock.advance(1);
  assert.equal(ps.lastFailure?.reason, `localhost cannot be reached: ${message}.`);
  await clock.advance(300);
  const overHttp = await received(ps.occupancy('a.b'));
  assert.equal(overHttp.message, `localhost cannot be reached: ${code}.`);
  for (const { remedy } of [await late, overHttp])
    assert.match(remedy, /`WebSocket` and a `fetch` that present a client certificate/);
  await ps.close({ timeout: 0 });
});

for (const [message, code] of [
  ['certificate is not yet valid', 'CERT_NOT_YET_VALID'],
  ['certificate has expired', 'CERT_HAS_EXPIRED'],
] as const) {
  test(`the clock is a cause of: ${message}, over both transports`, async () => {
    const { ps, clock } = withoutTls(message, code);
    const late = received(ps.connect({ timeout: 300 }));
    await clock.advance(301);
    for (const { remedy } of [await late, await received(ps.occupancy('a.b'))])
      assert.match(remedy, /Check the clock of this machine/);
    await ps.close({ timeout: 0 });
  });
}

for (const reason of ['wrong version number', 'packet length too long']) {
  test(`TLS to a port without it has a remedy, over both transports: ${reason}`, async () => {
    const code = `ERR_SSL_${reason.toUpperCase().replaceAll(' ', '_')}`;
    const message = `write EPROTO 80:SSL routines:read:${reason}:../record.c:350:\n`;
    const { ps, clock } = withoutTls(message, code);
    const late = received(ps.connect({ timeout: 300 }));
    await clock.advance(301);
    assert.match(ps.lastFailure?.reason ?? '', /record\.c:350\.$/);
    for (const { remedy } of [await late, await received(ps.occupancy('a.b'))])
      assert.match(remedy, /The port answers without TLS: use `ws:\/\/`/);
    await ps.close({ timeout: 0 });
  });
}

test('an outage is logged once, with the reason and the remedy', async () => {
  const warnings: string[] = [];
  const logger = { warn: (text: string) => void warnings.push(text), error: () => {} };
  const { ps, peer, clock } = virtualClient({ logger, transport: 'websocket' });
  peer.isDown = true;
  void received(ps.connect());
  await turns();
  const [warning = ''] = warnings;
  assert.match(
    warning,
    /^No connection to ws:\S+\/ws: localhost cannot be reached\. Check the URL/,
  );
  assert.match(warning, / The client keeps trying\.$/);
  await clock.advance(30_000);
  assert.equal(warnings.length, 1);
  peer.isDown = false;
  await clock.advance(30_000);
  assert.equal(ps.state, 'connected');
  peer.isDown = true;
  peer.sockets.at(-1)?.drop();
  await turns();
  assert.equal(warnings.length, 1, 'it may be a restart of the server');
  await clock.advance(30_000);
  assert.equal(warnings.length, 2);
  await ps.close({ timeout: 0 });
});

test('connections that are lost again and again are one warning', async () => {
  const warnings: string[] = [];
  const logger = { warn: (text: string) => void warnings.push(text), error: () => {} };
  const { ps, peer, clock } = virtualClient({ logger, transport: 'websocket' });
  await ps.connect();
  for (let loss = 0; loss < 20; loss += 1) {
    peer.sockets.at(-1)?.drop();
    for (let tries = 0; ps.state !== 'connected' && tries < 600; tries += 1)
      await clock.advance(100);
    assert.equal(ps.state, 'connected');
  }
  assert.equal(warnings.length, 1);
  await clock.advance(11_000); // stable
  for (let loss = 0; loss < 4; loss += 1) {
    peer.sockets.at(-1)?.drop();
    for (let tries = 0; ps.state !== 'connected' && tries < 600; tries += 1)
      await clock.advance(100);
  }
  assert.equal(warnings.length, 2);
  await ps.close({ timeout: 0 });
});

for (const works of [false, true]) {
  const title = works
    ? 'is logged only as a fallback if HTTP works'
    : 'is logged at once if HTTP fails too';
  test(`a failure of the first WebSocket ${title}`, async () => {
    const warnings: string[] = [];
    const logger = { warn: (text: string) => void warnings.push(text), error: () => {} };
    const { dial } = platform;
    const { ps, peer, clock } = virtualClient(
      {
        logger,
        fetch: async () => {
          if (!works) throw new TypeError('fetch failed');
          return Response.json({ client_id: 'c1', version: 1 });
        },
      },
      { dial },
    );
    peer.isDown = true;
    ps.connect().catch(() => {});
    await turns();
    if (works) {
      await clock.advance(10_000);
      assert.equal(ps.transport, 'sse');
    }
    const [warning = '', ...others] = warnings;
    assert.match(warning, works ? /using server-sent events instead\./ : /^No connection to /);
    assert.deepEqual(others, []);
    await ps.close({ timeout: 0 });
  });
}

test('the log of an outage names the port of the WebSocket if the URL has that of HTTP', async () => {
  const warnings: string[] = [];
  const logger = { warn: (text: string) => void warnings.push(text), error: () => {} };
  const url = 'ws://localhost:8056/ws';
  const { ps, peer } = virtualClient({ logger, url, transport: 'websocket' });
  peer.isDown = true;
  void received(ps.connect());
  await turns();
  assert.match(warnings.join('\n'), /: set `url` to ws:\/\/localhost:8057\/ws, /);
  await ps.close({ timeout: 0 });
});

test('a page that was loaded over HTTPS is not told to allow insecure addresses', (t) => {
  const open = (): PubSubError => {
    try {
      return assert.fail(`${new PubSub({ url: 'ws://pubsub.example.com/ws', token: 'x' })}`);
    } catch (error) {
      return error as PubSubError;
    }
  };
  t.after(() => Reflect.deleteProperty(globalThis, 'location'));
  Object.assign(globalThis, { location: { protocol: 'http:' } });
  assert.match(open().remedy, /`allowInsecure: true`/);
  Object.assign(globalThis, { location: { protocol: 'https:' } });
  assert.equal(open().code, 'insecure_url');
  assert.doesNotMatch(open().remedy, /allowInsecure/);
});

test('a callback that fails is reported as an error, and not as an outage', async () => {
  const log: string[] = [];
  const { ps, clock } = virtualClient({
    getToken: () => Promise.reject(new Error('no session')),
    logger: {
      warn: (text) => void log.push(`warning: ${text}`),
      error: (text) => void log.push(`error: ${text}`),
    },
  });
  const late = received(ps.connect({ timeout: 60_000 }));
  await clock.advance(60_001);
  await late;
  assert.equal(log.length, 1);
  assert.match(log[0] ?? '', /^error: token_unavailable/);
  await ps.close({ timeout: 0 });
});

test('without WebSockets, an address that has no HTTP API is logged with `restUrl`', async (t) => {
  const warnings: string[] = [];
  const logged = deferred<string>();
  const logger = {
    warn: (text: string) =>
      void (/^No connection/.test(text) ? logged.resolve(text) : warnings.push(text)),
    error: () => {},
  };
  const ps = bare(t, { logger, retry: { base: 10, cap: 20 }, fetch: nothing });
  const late = received(ps.connect());
  const text = await bounded(logged.promise, 'the warning');
  assert.match(text, /answered GET \/v1\/subscribe with HTTP 404/);
  assert.match(text, /Set `restUrl` to the HTTP API of the server\./);
  await ps.close({ timeout: 0 });
  assert.match((await late).message, /closed/);
});

test('without a server, a client logs after its first attempt how to start one', async (t) => {
  const logged = deferred<string>();
  const logger = {
    warn: (text: string) => void (/^No connection/.test(text) && logged.resolve(text)),
    error: () => {},
  };
  const ps = bare(t, { logger, retry: { base: 3_600_000, cap: 3_600_000 }, fetch: refused });
  const late = received(ps.connect());
  const text = await bounded(logged.promise, 'the warning');
  assert.match(text, /^No connection to ws:\S+: 127\.0\.0\.1:1 cannot be reached: ECONNREFUSED\. /);
  assert.match(text, / Start the server, in development with `hanzo-pubsub serve --dev`, or /);
  const { remedy } = await received(ps.history('demo.a').next());
  assert.match(remedy, /Start the server, in development with `hanzo-pubsub serve --dev`, or /);
  await ps.close({ timeout: 0 });
  await late;
});

test('a page learns where to look for the reason that the browser hides', async (t) => {
  const options = { transport: 'websocket', restAttempts: 1 } as const;
  const { ps, peer, clock } = virtualClient({
    ...options,
    url: 'wss://insecure.example.com/ws',
    fetch: async () => {
      throw new TypeError('Failed to fetch');
    },
  });
  peer.isDown = true;
  const remedies = async (): Promise<string[]> => {
    const late = received(ps.connect({ timeout: 300 }));
    await clock.advance(301);
    const errors = [await late, await received(ps.occupancy('a.b'))];
    return errors.map(({ remedy }) => remedy);
  };
  t.after(() => Reflect.deleteProperty(globalThis, 'location'));
  for (const remedy of await remedies()) assert.doesNotMatch(remedy, /browser|HTTPS/);
  Object.assign(globalThis, { location: undefined }); // as in Deno
  for (const remedy of await remedies()) assert.doesNotMatch(remedy, /browser|HTTPS/);
  Object.assign(globalThis, { location: { origin: 'http://localhost:5173' } });
  for (const remedy of await remedies()) {
    assert.match(
      remedy,
      /Check that the server is running\. The console of the browser names the reason/,
    );
    assert.match(remedy, /CORS .*, add http:\/\/localhost:5173 to `cors_origins`/);
  }
  await ps.close({ timeout: 0 });
});

test('a page that was loaded over HTTPS is told to use encrypted addresses', async () => {
  const { ps, clock } = virtualClient({
    transport: 'websocket',
    // biome-ignore lint/complexity/useArrowFunction: it is called with `new`
    WebSocket: function () {
      throw new Error('An insecure WebSocket connection may not be initiated.');
    } as unknown as WebSocketConstructor,
  });
  const late = received(ps.connect({ timeout: 300 }));
  await clock.advance(301);
  assert.match(
    (await late).remedy,
    /^On a page loaded over HTTPS, use `wss:\/\/` and `https:\/\/`/,
  );
  await ps.close({ timeout: 0 });
});

test('a lost connection has the same code where the platform reports 0, as Deno does', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  const changes: StateChange[] = [];
  ps.on('state', (change) => void changes.push(change));
  await ps.connect();
  peer.socket.drop(0);
  await clock.advance(5_000);
  const lost = changes.filter(({ to }) => to === 'reconnecting');
  assert.deepEqual(
    lost.map(({ code, reason }) => `${code} ${reason}`),
    ['1006 The connection was lost.'],
  );
  await ps.close({ timeout: 0 });
});

test('the error of the socket is part of the reason', async () => {
  const { WebSocket } = await import('ws');
  const ps = new PubSub({
    url: 'ws://127.0.0.1:1/ws',
    token: 'x',
    transport: 'websocket',
    WebSocket,
    logger: quiet,
  });
  const states = ps.states();
  const late = received(ps.connect());
  for await (const { reason } of states) {
    if (!reason) {
      continue;
    }
    assert.match(reason, /^127\.0\.0\.1:1 cannot be reached: .*ECONNREFUSED/);
    break;
  }
  await ps.close({ timeout: 0 });
  await late;
});

test('the HTTP address gives the reason that the WebSocket of Node hides', async () => {
  const { WebSocket } = await import('undici');
  // A port that no program listens on.
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as AddressInfo;
  taken.close();
  await once(taken, 'close');
  // One attempt: the next one would end with a reason that HTTP has not explained yet.
  const environment = { ...platform, random: () => 0.9 };
  const options: PubSubOptions = {
    url: `ws://127.0.0.1:${port}/ws`,
    token: 'x',
    WebSocket: WebSocket as unknown as WebSocketConstructor,
    logger: quiet,
    operationTimeout: 3_000,
    retry: { base: 60_000, cap: 60_000 },
  };
  const ps = new PubSub(options, environment);
  const { message } = await received(ps.publish('a', { data: 1 }));
  assert.match(message, RegExp(`Last failure: 127.0.0.1:${port} cannot be reached: ECONNREFUSED`));
  await ps.close({ timeout: 0 });
});

test('a publish that could not be sent in time contains the reason', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  peer.isDown = true;
  const late = received(ps.publish('a.b', { data: 1 }, { timeout: 300 }));
  await clock.advance(301);
  const error = await late;
  assert.ok(error instanceof OperationTimeout && !error.outcomeUnknown);
  assert.match(
    error.message,
    /^The message could not be sent within 300 ms\. State: \w+, no connection for 30\d ms\. Last failure: l/,
  );
  assert.match(error.remedy, /^Check the URL/);
  await ps.close({ timeout: 0 });
});

test('each call of a failed client has its own error, with its caller in the stack', async () => {
  const { ps } = virtualClient({
    getToken: () => {
      throw new AuthRefused('Logged out.');
    },
  });
  const first = await received(ps.connect());
  const caller = (): Promise<PubSubError> => received(ps.publish('a.b', { data: 1 }));
  const [one, other] = [await caller(), await caller()];
  assert.notEqual(one, other);
  for (const error of [one, other]) {
    assert.ok(error instanceof AuthRefused);
    assert.equal(error.message, first.message);
    assert.match(error.stack ?? '', /caller/);
  }
});

const wrong = (value: unknown): never => value as never;
const NOW = Date.UTC(2026, 0, 1);
const REFUSED: readonly [string, RegExp, (ps: PubSub) => Promise<unknown>][] = [
  ['seconds for milliseconds', /milliseconds/, (ps) => ps.subscribe('a.b', { since: NOW / 1_000 })],
  ['seconds in history', /milliseconds/, (ps) => ps.history('a.b', { since: NOW / 1_000 }).next()],
  [
    'a time as text',
    /^Pass Unix milliseconds or a Date/,
    (ps) => ps.subscribe('a.b', { since: wrong('2026-01-01') }),
  ],
  [
    'a date that is none',
    /^Pass Unix milliseconds/,
    (ps) => ps.subscribe('a.b', { since: new Date('tomorrow') }),
  ],
  [
    'a handler in lower case',
    /^Write `onMessage`/,
    (ps) => ps.subscribe('a.b', wrong({ onmessage: 1 })),
  ],
  ['a handler that is none', /^Pass a function/, (ps) => ps.subscribe('a.b', wrong({ onGap: 1 }))],
  ['no type', /^Pass a string of 1/, (ps) => ps.publish('a.b', wrong({ type: 5, data: 1 }))],
  ['a missing letter', /^Write `getToken`/, async () => new PubSub(wrong({ getTokn: 1 }))],
  ['a letter too many', /^Write `onMessage`/, (ps) => ps.subscribe('a', wrong({ onMesssage: 1 }))],
  ['exchanged letters', /^Write `history`/, (ps) => ps.subscribe('a', wrong({ hisotry: 1 }))],
  ['a name of Python', /^Write `getToken`/, async () => new PubSub(wrong({ get_token: 1 }))],
];
for (const [what, remedy, call] of REFUSED) {
  test(`${what}: the remedy says what to do`, async () => {
    const { ps } = virtualClient();
    const error = await received(call(ps));
    assert.ok(error instanceof InvalidOption);
    assert.match(error.remedy, remedy);
    await ps.close();
  });
}

test('the error for an unknown option lists the valid ones, each once', async () => {
  const { ps } = virtualClient();
  const { remedy } = await received(ps.subscribe('a.b', wrong({ colour: 1 })));
  assert.equal(remedy.match(/timeout/g)?.length, 1, remedy);
  await ps.close();
});

test('0 is a valid time', async () => {
  const { ps } = virtualClient();
  for (const since of [0, new Date(0), 1e11]) await ps.subscribe('a.b', { since });
  await ps.close();
});

/** A client on a platform without WebSockets. */
function bare(t: TestContext, options: PubSubOptions): PubSub {
  const { WebSocket } = globalThis;
  Reflect.deleteProperty(globalThis, 'WebSocket');
  t.after(() => {
    if (WebSocket) globalThis.WebSocket = WebSocket;
  });
  return new PubSub({ url: 'ws://127.0.0.1:1/ws', token: 'x', logger: quiet, ...options });
}

test('a missing WebSocket is an error when the client connects, and not before', async (t) => {
  const refusal = { code: 'invalid_option', field: 'WebSocket', remedy: /package `ws`/ };
  const ps = bare(t, { transport: 'websocket' });
  await assert.rejects(ps.connect(), refusal);
  await assert.rejects(ps.subscribe('a.b'), refusal);
  await assert.rejects(ps.publish('a.b', { data: 1 }), refusal);
  await ps.close();
  assert.equal(ps.state, 'closed');
});

test('without WebSockets, the client starts with an event stream and logs this once', async (t) => {
  const output: string[] = [];
  const asked: unknown[] = [];
  const ps = bare(t, {
    logger: { warn: (words) => void output.push(words), error: () => {} },
    fetch: async (url) => {
      asked.push(url);
      throw new TypeError('unreachable');
    },
  });
  const states = ps.states();
  assert.deepEqual(output, [], 'nothing is said before the client connects');
  const late = received(ps.connect({ timeout: 10_000 }));
  for await (const { to } of states) if (to === 'reconnecting' && output.length) break;
  assert.ok(String(asked[0]).startsWith('http://127.0.0.1:1/'));
  await ps.close({ timeout: 0 });
  await late;
  const [warning = '', ...others] = output.filter((words) => !/^No connection to /.test(words));
  assert.match(warning, /The client uses server-sent events instead\. Pass `WebSocket`/);
  assert.deepEqual(others, []);
});

/** A client whose HTTP requests have this result. */
function overHttp(options: PubSubOptions, answer: () => Promise<Response>): PubSub {
  return virtualClient({ fetch: answer, restAttempts: 1, ...options }).ps;
}

const nothing = async (): Promise<Response> => new Response('no', { status: 404 });
const refused = async (): Promise<Response> => {
  throw new TypeError('fetch failed', { cause: { code: 'ECONNREFUSED' } });
};

test('the error for an answer of another service names the address and the cause', async () => {
  const ps = overHttp({ url: 'ws://localhost:24057/ws' }, nothing);
  const error = await received(ps.presence('a.b'));
  assert.ok(error instanceof NotFound);
  assert.equal(error.message, 'localhost:24057 answered HTTP 404 without saying why.');
  assert.match(error.remedy, /^http:\/\/localhost:24057 was derived from `url`: pass `restUrl`/);
  const named = overHttp({ restUrl: 'http://localhost:1' }, nothing);
  assert.doesNotMatch((await received(named.presence('a.b'))).remedy, /derived/);
});

test('a `restUrl` at the WebSocket port is named, with the likely HTTP port', async () => {
  const restUrl = 'http://localhost:8057';
  for (const [status, url] of [
    [404, 'ws://localhost:8057/ws'],
    [426, 'ws://localhost:8057/ws'],
    [404, 'ws://elsewhere.localhost/ws'],
  ] as const) {
    const ps = overHttp({ url, restUrl }, async () => new Response('no', { status }));
    const { message, remedy } = await received(ps.presence('a.b'));
    assert.equal(
      message,
      `localhost:8057 answered HTTP ${status}: port 8057 is the WebSocket port, not the HTTP port.`,
    );
    assert.equal(
      remedy,
      'The HTTP API is probably at http://localhost:8056: pass this as `restUrl`.',
    );
  }
});

test('a `restUrl` with the address of the WebSocket is doubted only if another service answers', async () => {
  const restUrl = 'http://localhost:24057';
  const url = 'ws://localhost:24057/ws';
  const { remedy } = await received(overHttp({ url, restUrl }, nothing).presence('a.b'));
  assert.equal(
    remedy,
    'The WebSocket has this address, too: route `/v1/` to the HTTP API, or set `restUrl` to its address.',
  );
  const known = async () => Response.json({ code: 'not_found' }, { status: 404 });
  const missing = await received(overHttp({ url, restUrl }, known).presence('a.b'));
  assert.doesNotMatch(missing.remedy, /WebSocket/);
});

test('a refused connection means that nothing was published', async () => {
  const ps = overHttp({ url: 'ws://localhost:24057/ws' }, refused);
  const error = await received(ps.publish('a.b', { data: 1 }, { via: 'rest' }));
  assert.ok(error instanceof ConnectionFailed);
  assert.equal(error.message, 'localhost:24057 cannot be reached: ECONNREFUSED.');
  assert.match(error.remedy, /pass `restUrl`/);
});

test('the error for an unanswered request names the server', async () => {
  const ps = overHttp({ url: 'ws://localhost:24057/ws' }, async () => {
    throw new TypeError('fetch failed');
  });
  const error = await received(ps.publish('a.b', { data: 1 }, { via: 'rest' }));
  assert.equal(error.code, 'outcome_unknown');
  assert.match(error.message, /^localhost:24057, which was derived from `url`, did not answer;/);
});

test('a request for more history than the server retains is logged once per subscription', async () => {
  const output: string[] = [];
  const logger = { warn: (words: string) => output.push(words), error: () => {} };
  const { ps, peer, clock } = virtualClient({ logger, retry: { base: 10, cap: 10 } });
  peer.hello = () => ({ ...CURRENT, limits: { history_max: 100 } });
  assert.equal(ps.limits, undefined);
  await ps.subscribe('a.b', { history: 100 });
  await ps.subscribe('a.b');
  await turns();
  assert.deepEqual(ps.limits, { history_max: 100 });
  assert.deepEqual(output, []);
  await ps.subscribe('a.b', { history: 10_000 });
  await turns();
  peer.socket.drop();
  await clock.advance(100);
  assert.equal(ps.state, 'connected');
  assert.deepEqual(output, [
    'subscribe() to a.b asks for `history` of 10,000 messages, and the server retains 100 messages ' +
      'of a topic, unless its settings say otherwise for this topic (`ps.limits.history_max`).',
  ]);
  await ps.close({ timeout: 0 });
});
