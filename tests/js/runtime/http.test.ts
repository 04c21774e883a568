import assert from 'node:assert/strict';
import { createServer, type Server as HttpServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';

import {
  AuthRefused,
  type HistoryOptions,
  type Message,
  OperationTimeout,
  PermissionDenied,
  type Published,
  type PublishOptions,
  PubSub,
  PubSubError,
  type PubSubOptions,
  RateLimited,
  Unsupported,
} from '../../../js/src/index.js';
import { deferred, Server } from './server.js';
import { virtualClient } from './virtual.js';

let server: Server;
let service: string;

before(async () => {
  server = await Server.start('--publish-rate-service', '10000', '--history-max-messages', '300');
  service = server.token('--user', 'worker', '--org', 'acme', '--service');
});
after(() => server.stop());

test('history reads all pages, oldest first, in both directions', async () => {
  const ps = server.client({ token: service, historyPage: 30 });
  const results = await ps.publishMany(
    Array.from({ length: 100 }, (_, data) => ['demo.pages', { data }] as const),
  );
  const first = results[0];
  assert.ok(first && !(first instanceof PubSubError));
  const read = async (options: Parameters<PubSub['history']>[1]) => {
    const got: unknown[] = [];
    for await (const { data } of ps.history('demo.pages', options)) got.push(data);
    return got;
  };
  const all = Array.from({ length: 100 }, (_, data) => data);
  assert.deepEqual(await read({}), all);
  for (const limit of [Infinity, 2 ** 64]) assert.deepEqual(await read({ limit }), all);
  assert.deepEqual(await read({ limit: 45 }), all.slice(-45));
  assert.deepEqual(await read({ after: first.seq }), all.slice(1));
  assert.deepEqual(await read({ after: first.seq, limit: 45 }), all.slice(1, 46));
  await ps.close();
});

test('messages of several senders with the same ids are all read', async () => {
  const ids = Array.from({ length: 20 }, (_, n) => `order-${n}`);
  for (const user of ['ann', 'bob']) {
    const ps = server.client({ token: server.token('--user', user) });
    await ps.publishMany(ids.map((id) => ['demo.shared', { id, data: `${user} ${id}` }] as const));
    await ps.close();
  }
  const all = ['ann', 'bob'].flatMap((user) => ids.map((id) => `${user} ${id}`));
  for (const historyPage of [10, 20]) {
    const ps = server.client({ token: service, historyPage });
    const read = async (options: Parameters<PubSub['history']>[1]) => {
      const got: unknown[] = [];
      for await (const { data } of ps.history('demo.shared', options)) got.push(data);
      return got;
    };
    assert.deepEqual(await read({}), all);
    assert.deepEqual(await read({ limit: 35 }), all.slice(-35));
    assert.deepEqual(await read({ after: 0 }), all);
    await ps.close();
  }
});

test('presence and topics are requested over HTTP', async () => {
  const ps = server.client({ token: server.token('--user', 'root', '--admin') });
  const sub = await ps.topic('demo.present').subscribe();
  assert.deepEqual(
    (await ps.presence('demo.present')).map(({ user_id }) => user_id),
    ['root'],
  );
  const found = await ps.topics('demo.present');
  assert.deepEqual(
    found.map(({ topic }) => topic),
    ['demo.present'],
  );
  assert.deepEqual(await ps.occupancy('demo.present'), { members: 1, users: 1 });
  assert.deepEqual(await ps.topic('demo.empty').occupancy(), { members: 0, users: 0 });
  await sub.unsubscribe();
  await ps.close();
});

test('`transport` names the current transport', async () => {
  for (const transport of ['websocket', 'sse'] as const) {
    const ps = server.client({ token: service, transport });
    assert.equal(ps.transport, undefined);
    await ps.connect();
    assert.equal(ps.transport, transport);
    await ps.close();
    assert.equal(ps.transport, undefined);
  }
});

test("a publish with `via: 'rest'` uses HTTP, without a connection", async () => {
  const ps = server.client({ token: service });
  const done = await ps.publish('demo.rest', { data: 1 }, { via: 'rest' });
  assert.equal(typeof done.seq, 'number');
  const results = await ps.publishMany([['demo.rest', { data: 2 }]], { via: 'rest' });
  assert.equal(results.length, 1);
  assert.equal(ps.state, 'initialized');
  await ps.close();
  const user = server.client({ token: server.token('--user', 'alice') });
  const isNamed = (error: unknown) =>
    error instanceof PermissionDenied && error.message.includes('org.x.y');
  await assert.rejects(user.publish('org.x.y', { data: 1 }), isNamed);
  await assert.rejects(user.publish('org.x.y', { data: 1 }, { via: 'rest' }), isNamed);
  await assert.rejects(user.subscribe('org.x.y'), isNamed);
  await assert.rejects(user.presence('org.x.y'), isNamed);
  await assert.rejects(user.history('org.x.y').next(), isNamed);
  await user.close();
});

test('a message may have any id over HTTP', async () => {
  for (const transport of ['websocket', 'sse'] as const) {
    const ps = server.client({ token: service, transport });
    for (const id of ['é', '日本', 'a b', ' a', 'a\nb']) {
      const done = await ps.publish('demo.ids', { data: 1 }, { id, via: 'rest' });
      const again = await ps.publish('demo.ids', { data: 1 }, { id });
      assert.deepEqual([done.id, again.id, again.duplicate], [id, id, true]);
    }
    await ps.close();
  }
});

test('an error does not quote the token that a gateway echoes', async () => {
  for (const status of [400, 401, 403, 502]) {
    const tokens = ['a/first-secret-token', 'a/renewed-secret-token'];
    const ps = new PubSub({
      url: 'http://127.0.0.1:1',
      getToken: () => tokens.shift() ?? 'a-third-secret-token',
      restAttempts: 1,
      fetch: async (_, init) => {
        const header = new Headers(init?.headers).get('Authorization');
        const body = { message: `'${header}' is not a valid header`, remedy: header };
        return new Response(JSON.stringify(body).replaceAll('/', '\\/'), { status });
      },
    });
    await assert.rejects(ps.publish('a.b', { data: 1 }, { via: 'rest' }), (error) => {
      assert.ok(error instanceof PubSubError);
      assert.match(error.message, /'Bearer \[token\]' is not a valid header/);
      return !`${error} ${error.remedy}`.includes('secret-token');
    });
    await ps.close();
  }
});

test('a refused token is replaced once', async () => {
  const reasons: string[] = [];
  const ps = server.client({
    getToken: ({ reason }) => {
      reasons.push(reason);
      return reason === 'rejected' ? service : 'stale';
    },
  });
  await ps.publish('demo.rest', { data: 1 }, { via: 'rest' });
  assert.deepEqual(reasons, ['connect', 'rejected']);
  await ps.close();
});

test('rejected tokens are counted from one request to the next, until one is accepted', async () => {
  const attempts: number[] = [];
  const ps = server.client({
    getToken: ({ reason, attempt }) => {
      if (reason === 'rejected') attempts.push(attempt);
      return attempt < 2 ? 'stale' : service;
    },
  });
  const publish = () => ps.publish('demo.rest', { data: 1 }, { via: 'rest' });
  await assert.rejects(publish(), { name: 'AuthError' });
  await assert.rejects(publish(), { name: 'AuthError' });
  await publish();
  assert.deepEqual(attempts, [0, 1, 2]);
  await ps.close();
});

/** A server with custom answers. */
async function peculiar(
  answer: (number: number, response: ServerResponse) => void,
): Promise<{ http: HttpServer; ps: PubSub; url: string }> {
  let number = 0;
  const http = createServer((request, response) => {
    request.resume();
    number += 1;
    answer(number, response);
  });
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  return { http, url, ps: new PubSub({ url, token: 'x', retry: { base: 1, cap: 5 } }) };
}

test('a token that replaces a rejected one is counted as accepted by the answer', async () => {
  const attempts: number[] = [];
  const { http, url, ps } = await peculiar((number, response) => {
    if (number % 2) response.writeHead(401).end();
    else response.end('{"id":"msg_1","timestamp":5}');
  });
  await ps.close();
  const renewing = new PubSub({
    url,
    getToken: ({ reason, attempt }) => {
      if (reason === 'rejected') attempts.push(attempt);
      return `t${attempts.length}`;
    },
  });
  for (let n = 0; n < 3; n += 1) await renewing.publish('a', { data: 1 }, { via: 'rest' });
  assert.deepEqual(attempts, [0, 0, 0]);
  await renewing.close();
  http.close();
});

test('a request to a busy server is retried after the time that it states', async () => {
  let asked = 0;
  const { http, ps } = await peculiar((number, response) => {
    asked = number;
    if (number < 3) response.writeHead(number === 1 ? 429 : 503, { 'Retry-After': '0' }).end();
    else response.end('{"id":"msg_1","timestamp":5}');
  });
  const done = await ps.publish('a', { data: 1 }, { via: 'rest' });
  assert.deepEqual([done.id, done.timestamp, asked], ['msg_1', 5, 3]);
  http.close();
});

test('a wait beyond the timeout is not begun', async () => {
  let asked = 0;
  const { http, ps } = await peculiar((number, response) => {
    asked = number;
    response.writeHead(429, { 'Retry-After': '3600' });
    // The body counts; a wait of more than an hour does not.
    response.end(number === 2 ? '{"code":"rate_limited","retry_after_ms":1e12}' : '');
  });
  for (let n = 1; n <= 2; n += 1) {
    await assert.rejects(
      ps.publish('a', { data: 1 }, { via: 'rest', timeout: 20_000 }),
      (error) => error instanceof RateLimited && error.retryAfter === 3_600_000,
    );
    assert.equal(asked, n);
  }
  http.close();
});

test('the outcome of a publish without a token is known: nothing was sent', async () => {
  let asked = 0;
  const { http, url } = await peculiar((number) => {
    asked = number;
  });
  const ps = new PubSub({ url, getToken: () => new Promise<string>(() => {}) });
  await assert.rejects(
    ps.publish('a', { data: 1 }, { via: 'rest', timeout: 50 }),
    (error) => error instanceof OperationTimeout && !error.outcomeUnknown,
  );
  assert.equal(asked, 0);
  http.close();
});

test('without batches, the timeout is for all messages together', async () => {
  let asked = 0;
  const { http, ps } = await peculiar((number, response) => {
    asked = number;
    if (number === 1) response.writeHead(404).end();
  });
  const messages = Array.from({ length: 5 }, (_, data) => ['a', { data }] as const);
  const results = await ps.publishMany(messages, { via: 'rest', timeout: 3_000 });
  assert.deepEqual(
    results.map((result) => result instanceof OperationTimeout && result.outcomeUnknown),
    [true, false, false, false, false],
  );
  assert.equal(asked, 2);
  http.closeAllConnections();
  http.close();
});

test('the history of a peer that ignores the position ends', async () => {
  let asked = 0;
  const { http, ps } = await peculiar((number, response) => {
    asked = number;
    const newest = { id: 'm9', topic: 'a', type: 't', data: 9, timestamp: 9 };
    // Without this end, the client would ask forever.
    response.end(JSON.stringify({ messages: [newest], has_more: number < 50 }));
  });
  for (const options of [{ after: 4 }, {}, { limit: 3 }]) {
    const before = asked;
    const got: unknown[] = [];
    for await (const { data } of ps.history('a', options)) got.push(data);
    assert.deepEqual([got, asked - before], [[9], 2]);
  }
  http.close();
});

for (const [first, last] of [
  [4, 9],
  [6, 6],
  [7, 7],
] as const) {
  for (const leftOut of [undefined, 'id', 'seq'] as const) {
    const what = leftOut ? ` without \`${leftOut}\`` : '';
    test(`malformed messages ${first} to ${last}${what} do not end the history`, async () => {
      const { http, ps } = await peculiar((_, response) => {
        const query = new URL(response.req.url ?? '', 'http://a').searchParams;
        const [before, after] = ['before_seq', 'after'].map((name) => query.get(name));
        const end = before ? Number(before) : Number(query.get('before')?.slice(1) ?? 13);
        const from = Math.max(1, after ? Number(after) + 1 : end - 3);
        const length = after ? Math.min(3, 13 - from) : end - from;
        const messages = Array.from({ length }, (__, n) => {
          const seq = from + n;
          const given = { id: `m${seq}`, topic: 'a', type: 't', data: seq, timestamp: 9, seq };
          if (seq < first || seq > last) return given;
          const { topic: _, ...malformed } = given;
          return { ...malformed, ...(leftOut && { [leftOut]: undefined }) };
        });
        response.end(JSON.stringify({ messages, has_more: after ? from < 10 : from > 1 }));
      });
      // Without a position in a whole page, there is nothing to continue after.
      for (const options of leftOut === 'seq' && last > first ? [{}] : [{}, { after: 0 }]) {
        const got: unknown[] = [];
        for await (const { data } of ps.history('a', options)) got.push(data);
        const others = Array.from({ length: 12 }, (_, n) => n + 1);
        assert.deepEqual(
          got,
          others.filter((seq) => seq < first || seq > last),
        );
      }
      http.close();
    });
  }
}

test('history ends where no message of a page shows its place', async () => {
  let asked = 0;
  const { http, ps } = await peculiar((number, response) => {
    asked = number;
    // Without this end, the client would ask forever.
    response.end(JSON.stringify({ messages: [{ id: true, seq: -1 }, 5], has_more: number < 50 }));
  });
  for (const options of [{}, { after: 0 }]) {
    for await (const { data } of ps.history('a', options)) assert.fail(String(data));
  }
  assert.equal(asked, 2);
  http.close();
});

test('a peer that ignores where to begin repeats no message', async () => {
  const { http, ps } = await peculiar((_, response) => {
    const newest = { id: 'm9', topic: 'a', type: 't', data: 9, timestamp: 9, seq: 9 };
    response.end(JSON.stringify({ messages: [newest], has_more: true }));
  });
  for await (const { data } of ps.history('a', { after: 9 })) assert.fail(String(data));
  http.close();
});

test('history from two servers that answer in turn, with different positions, is rejected', async () => {
  const { http, ps } = await peculiar((number, response) => {
    const from = number % 2 ? 10 : 1;
    const messages = [0, 1, 2].map((n) => ({
      id: `m${from + n}`,
      topic: 'a',
      type: 't',
      data: from + n,
      timestamp: 9,
      seq: from + n,
    }));
    // Without this end, the client would ask forever.
    response.end(JSON.stringify({ messages, has_more: number < 50 }));
  });
  const got: unknown[] = [];
  const reading = async () => {
    for await (const { data } of ps.history('a', { after: 0 })) got.push(data);
  };
  await assert.rejects(reading(), /Servers with different positions answer in turn/);
  assert.deepEqual(got, [10, 11, 12, 1, 2, 3, 10, 11, 12]);
  http.close();
});

test('history that is cancelled gives no further messages, although it has them', async () => {
  const ps = server.client({ token: service, historyPage: 3 });
  for (let data = 0; data < 8; data += 1) await ps.publish('demo.cancelled', { data });
  for (const [options, first] of [
    [{}, 0] as const,
    [{ after: 0 }, 0] as const,
    [{ limit: 5 }, 3] as const,
  ]) {
    const abort = new AbortController();
    const got: unknown[] = [];
    const reading = async () => {
      const messages = ps.history('demo.cancelled', { ...options, signal: abort.signal });
      for await (const { data } of messages) {
        got.push(data);
        if (got.length === 2) abort.abort(new Error('enough'));
      }
    };
    await assert.rejects(reading(), /^Error: enough$/);
    assert.deepEqual(got, [first, first + 1]);
  }
  await ps.close();
});

test('history ends before a message, a result, a position, or an id', async () => {
  const ps = server.client({ token: service, historyPage: 3 });
  const other = server.client({ token: server.token('--user', 'ann') });
  const topic = 'demo.before';
  const results: Published[] = [];
  for (let data = 0; data < 8; data += 1) {
    const id = data === 6 ? 'once' : `m${data % 4}`;
    results.push(await (data < 4 ? ps : other).publish(topic, { data, id }));
  }
  await other.close();
  const read = async (options: HistoryOptions) => {
    const got: Message[] = [];
    for await (const message of ps.history(topic, options)) got.push(message);
    return got;
  };
  const [, , , , , message] = await read({});
  const { seq } = results[5] ?? {};
  for (const before of [message, results[5], seq]) {
    assert.deepEqual(
      (await read({ before, limit: 4 })).map(({ data }) => data),
      [1, 2, 3, 4],
    );
  }
  assert.deepEqual(
    (await read({ before: 'once', limit: 4 })).map(({ data }) => data),
    [2, 3, 4, 5],
  );
  await ps.close();
});

test('an end of history that is no message, position or id is reported', async () => {
  const ps = server.client({ token: service });
  for (const [before, field, message] of [
    [null, 'before', '`before` is null.'],
    [true, 'before', '`before` is a boolean.'],
    ['', 'before', '`before` is empty.'],
    [{}, 'before', '`before` has no `id`.'],
    [{ seq: 5 }, 'before', '`before` has no `id`.'],
    [{ id: 5 }, 'before.id', '`before.id` is a number.'],
  ]) {
    const reading = Reflect.apply(ps.history, ps, ['a', { before }]).next();
    await assert.rejects(reading, { code: 'invalid_option', field, message });
  }
  await ps.close();
});

test('a peer that cannot end history before a position is reported', async () => {
  for (const seq of [9, undefined]) {
    const { http, ps } = await peculiar((_, response) => {
      const newest = { id: 'm9', topic: 'a', type: 't', data: 9, timestamp: 9, seq };
      response.end(JSON.stringify({ messages: [newest], has_more: false }));
    });
    await assert.rejects(ps.history('a', { before: 9 }).next(), (error: PubSubError) => {
      assert.match(error.message, /cannot end a page before a position/);
      return error instanceof Unsupported && error.topic === 'a' && error.field === 'before';
    });
    http.close();
  }
});

test('the history ends where everything older expires meanwhile', async () => {
  const { http, ps } = await peculiar((number, response) => {
    const newest = { id: 'm9', topic: 'a', type: 't', data: 9, timestamp: 9 };
    const messages = number % 2 ? [newest] : [];
    response.end(JSON.stringify({ messages, has_more: number < 50 }));
  });
  const got: unknown[] = [];
  for await (const { data } of ps.history('a')) got.push(data);
  assert.deepEqual(got, [9]);
  http.close();
});

test('a publish over HTTP waits for earlier ones no longer than its timeout and signal', async () => {
  const first = deferred<ServerResponse>();
  const bodies: ServerResponse[] = [];
  const { http, ps } = await peculiar((_, response) => {
    bodies.push(response);
    first.resolve(response);
  });
  const publish = (data: number, more: PublishOptions = {}) =>
    ps.publish('a', { data }, { via: 'rest', ...more });
  const slow = publish(1);
  const response = await first.promise;
  const abort = new AbortController();
  const aborted = publish(2, { signal: abort.signal });
  const isUnsent = (error: unknown) => error instanceof OperationTimeout && !error.outcomeUnknown;
  await assert.rejects(publish(3, { timeout: 1 }), isUnsent);
  abort.abort(new Error('of no use'));
  await assert.rejects(aborted, /of no use/);
  assert.equal(bodies.length, 1);
  response.end('{"id":"msg_1","timestamp":5}');
  assert.equal((await slow).id, 'msg_1');
  http.close();
});

test('a check of the API that nobody answers leaves time for the connection', async () => {
  const { ps, peer, clock } = virtualClient({ fetch: () => new Promise(() => {}) });
  peer.hello = () => ({});
  const connected = ps.connect();
  await clock.advance(0);
  await connected;
  const published = ps.publish('a', { data: 1 }, { timeout: 1_000 });
  await clock.advance(499);
  assert.equal(peer.socket.frames('publish').length, 0);
  await clock.advance(2);
  assert.equal(peer.socket.frames('publish').length, 1);
  await published;
  await ps.close();
});

test('the client counts members if the server does not', async () => {
  const { http, ps } = await peculiar((number, response) => {
    if (number === 1) response.writeHead(404).end();
    else
      response.end('{"members":[{"user_id":"u","client_id":"1"},{"user_id":"u","client_id":"2"}]}');
  });
  assert.deepEqual(await ps.occupancy('a'), { members: 2, users: 1 });
  http.close();
});

test('an answer without the two numbers is no occupancy', async () => {
  const { http, ps } = await peculiar((_, response) => response.end('{"members":2}'));
  await assert.rejects(ps.occupancy('a'), { name: 'ProtocolError' });
  http.close();
});

test('closing waits for a publish over HTTP', async () => {
  const asked = deferred<ServerResponse>();
  const { http, ps } = await peculiar((_, response) => asked.resolve(response));
  const events: string[] = [];
  const publish = ps
    .publish('a', { data: 1 }, { via: 'rest' })
    .then(() => events.push('published'));
  const closing = ps.close().then(() => events.push('closed'));
  (await asked.promise).end('{"id":"msg_1","timestamp":5}');
  await Promise.all([publish, closing]);
  assert.deepEqual(events, ['published', 'closed']);
  http.close();
});

test('closing waits for a publish over HTTP no longer than its timeout', async () => {
  const asked = deferred<ServerResponse>();
  const { http, ps } = await peculiar((_, response) => asked.resolve(response));
  const publish = ps.publish('a', { data: 1 }, { via: 'rest' });
  const response = await asked.promise;
  await ps.close({ timeout: 10 });
  response.end('{"id":"msg_1","timestamp":5}');
  assert.equal((await publish).id, 'msg_1');
  http.close();
});

test('a redirect is refused, not followed with the token', async () => {
  let asked = 0;
  const { http, ps } = await peculiar((number, response) => {
    asked = number;
    response.writeHead(302, { Location: '/elsewhere' }).end();
  });
  await assert.rejects(ps.presence('a'), /HTTP 302/);
  assert.equal(asked, 1);
  http.close();
});

test('an unanswered publish times out as unknown, and a signal cancels it', async () => {
  const { http, ps } = await peculiar(() => {});
  await assert.rejects(
    ps.publish('a', { data: 1 }, { via: 'rest', timeout: 50 }),
    (error) => error instanceof OperationTimeout && error.outcomeUnknown,
  );
  const reason = new Error('enough');
  const abort = new AbortController();
  const asked = ps.presence('a', { signal: abort.signal });
  abort.abort(reason);
  await assert.rejects(asked, reason);
  http.closeAllConnections();
  http.close();
});

const refused = (code: string): Error => new TypeError('failed', { cause: { code } });

/** A client whose connections fail with these codes, one after the other. */
function failing(codes: string[], getToken: PubSubOptions['getToken']) {
  const { ps, clock } = virtualClient({
    fetch: () => Promise.reject(refused(codes.shift() ?? '')),
    getToken,
    operationTimeout: 60_000,
    retry: { base: 1, cap: 1 },
  });
  return { ps, clock };
}

test('a publish whose attempts all failed before sending is known not to be published', async () => {
  let asked = 0;
  const token = { value: 'expired', expiresAt: 1e11 };
  const { ps, clock } = failing(['ECONNREFUSED'], async () => {
    asked += 1;
    return asked === 1 ? token : new Promise<never>(() => {});
  });
  const published = ps.publish('a.b', { data: 1 }, { via: 'rest' }).catch((error) => error);
  await clock.advance(60_000);
  const error = await published;
  assert.ok(error instanceof OperationTimeout);
  assert.deepEqual([error.outcomeUnknown, asked], [false, 2]);
  await ps.close();
});

test('a token that is refused does not hide that an earlier attempt may have succeeded', async () => {
  let asked = 0;
  const { ps, clock } = failing(['ECONNRESET'], async () => {
    asked += 1;
    if (asked > 1) throw new AuthRefused();
    return { value: 'expired', expiresAt: 1e11 };
  });
  const published = ps.publish('a.b', { data: 1 }, { via: 'rest' }).catch((error) => error);
  await clock.advance(1_000);
  const error = await published;
  assert.ok(error instanceof OperationTimeout);
  assert.ok(error.outcomeUnknown);
  await ps.close();
});

test('each message of a batch over HTTP has the error of the request that carried it', async () => {
  const { http, ps } = await peculiar((number, response) => {
    if (number > 1) return response.destroy();
    const results = Array.from({ length: 5 }, (_, n) => ({ id: `m${n}`, timestamp: 1 }));
    return response.end(JSON.stringify({ results }));
  });
  const data = 'x'.repeat(200_000); // five of them fit into one request
  const messages = Array.from({ length: 6 }, (_, n) => ({ topic: 'a', data, id: `m${n}` }));
  const results = await ps.publishMany(messages, { via: 'rest' });
  const last = results.pop();
  assert.ok(results.every((result) => !(result instanceof PubSubError)));
  assert.ok(last instanceof OperationTimeout);
  assert.deepEqual([last.outcomeUnknown, last.topic, last.id], [true, 'a', 'm5']);
  http.close();
});

test('the result of a publish over HTTP does not quote the token', async () => {
  const token = 'header/"payload"/signature';
  const quoted = JSON.stringify(`no ${token}, never`).replaceAll('/', '\\/');
  const { http, url } = await peculiar((_, response) =>
    response.end(`{"results":[{"error":{"code":"forbidden","message":${quoted}}},{"id":"m"}]}`),
  );
  const results = await new PubSub({ url, token }).publishMany(
    [
      { topic: 'a', data: 1 },
      { topic: 'a', data: 2 },
    ],
    { via: 'rest' },
  );
  assert.match(String(results[0]), /no \[token\], never/);
  http.close();
});

test('each message of a batch has the error of the first request with its cause', async () => {
  const { ps, clock } = failing(['ECONNREFUSED'], async () => ({ value: 'token' }));
  const messages = [
    ['a.b', { data: 1, id: 'm1' }],
    ['a.c', { data: 2, id: 'm2' }],
  ] as const;
  const published = ps.publishMany(messages, { via: 'rest' });
  await clock.advance(60_000);
  const results = await published;
  assert.deepEqual(
    results.map((result) => result instanceof OperationTimeout && [result.topic, result.id]),
    [
      ['a.b', 'm1'],
      ['a.c', 'm2'],
    ],
  );
  assert.ok(results.every((result) => result instanceof Error && result.cause instanceof Error));
  await ps.close();
});
