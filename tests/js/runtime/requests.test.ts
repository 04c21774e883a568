import assert from 'node:assert/strict';
import { test } from 'node:test';

import { driverOf } from '../../../js/src/client.js';
import {
  ClosedError,
  InvalidOption,
  InvalidTopic,
  OperationTimeout,
  PermissionDenied,
  ReplyError,
  RequestTimeout,
} from '../../../js/src/errors.js';
import { request, respond } from '../../../js/src/requests/index.js';
import { isOwnReplyTopic } from '../../../js/src/requests/messages.js';
import { MemoryServer } from '../../../js/src/testing/index.js';
import type { Message } from '../../../js/src/values.js';
import { turns, virtualClient } from './virtual.js';

const TOPIC = 'demo.sum';

const add = ({ data }: Message): number => (data as number[]).reduce((a, b) => a + b, 0);

const started = (): Promise<MemoryServer> => new MemoryServer().start();

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

test('a request returns what the handler returns', async () => {
  const server = await started();
  const seen: Message[] = [];
  const responder = await respond(server.client(), TOPIC, async (message) => {
    seen.push(message);
    return add(message);
  });
  const client = server.client();
  const reply = await within(server, request(client, TOPIC, [1, 2, 3], { id: 'order-7' }));
  assert.equal(reply.data, 6);
  assert.deepEqual(reply.meta, { in_reply_to: 'order-7' });
  assert.deepEqual(
    seen.map(({ id, type, ttl, meta }) => [id, type, ttl, meta]),
    [['order-7', 'request', 10, { reply_to: reply.topic }]],
  );
  const replies = await within(
    server,
    Promise.all(Array.from({ length: 20 }, (_, n) => request(client, TOPIC, [n, n]))),
  );
  assert.deepEqual(
    replies.map(({ data }) => data),
    Array.from({ length: 20 }, (_, n) => 2 * n),
  );
  assert.equal(new Set(replies.map(({ topic }) => topic)).size, 1);
  await within(server, responder.close());
  assert.equal(responder.active, false);
  await server.stop();
});

test('expired requests and replies are not logged as gaps of a subscription', async () => {
  const server = await new MemoryServer({ historyMaxMessages: 1 }).start();
  const logged: string[] = [];
  const logger = { warn: (text: string) => logged.push(text), error: () => {} };
  const responder = await respond(server.client({ logger }), TOPIC, add);
  const client = server.client({ logger });
  const { topic } = await within(server, request(client, TOPIC, [1]));
  for (let outage = 0; outage < 2; outage += 1) {
    server.cut();
    for (const data of [1, 2, 3]) {
      await server.publish(TOPIC, { data });
      await server.publish(topic, { data });
    }
    const reply = await within(server, request(client, TOPIC, [2], { timeout: 60_000 }));
    assert.equal(reply.data, 2);
  }
  assert.deepEqual(
    logged.filter((text) => text.includes('missed')),
    [
      `A responder may have missed requests on topic ${TOPIC} (history_trimmed). Their senders get ` +
        'RequestTimeout. Further gaps of this responder are not logged.',
    ],
  );
  await within(server, responder.close());
  await server.stop();
});

test('without a responder, a request times out, and the error has its id', async () => {
  const server = await started();
  const asked = request(server.client(), TOPIC, null, { timeout: 3_000, id: 'r1' });
  await assert.rejects(within(server, asked), (error) => {
    assert.ok(error instanceof RequestTimeout && error instanceof OperationTimeout);
    assert.deepEqual([error.code, error.id, error.topic], ['request_timeout', 'r1', TOPIC]);
    return true;
  });
  await server.stop();
});

test('the error of a responder comes back with its code and data', async () => {
  const server = await started();
  const reported: unknown[] = [];
  const answering = server.client();
  answering.on('error', (error) => reported.push(error));
  await respond(answering, TOPIC, ({ data }) => {
    if (data === 'sold out') {
      throw new ReplyError('Sold out.', { code: 'out_of_stock', data: { left: 0 } });
    }
    if (data === 'bug') throw new Error('secret');
    return () => 'no JSON';
  });
  const client = server.client();
  const failure = (data: string): Promise<unknown> =>
    within(
      server,
      request(client, TOPIC, data).catch((error) => error),
    );
  const refused = (await failure('sold out')) as ReplyError;
  assert.ok(refused instanceof ReplyError);
  assert.deepEqual(
    [refused.code, refused.message, refused.data],
    ['out_of_stock', 'Sold out.', { left: 0 }],
  );
  assert.equal(reported.length, 0);
  for (const data of ['bug', 'function']) {
    const failed = (await failure(data)) as ReplyError;
    assert.equal(failed.code, 'responder_failed');
    assert.equal(failed.message, 'The responder failed to answer the request.');
    assert.doesNotMatch(String(failed), /secret/);
  }
  assert.equal(reported.length, 2);
  await server.stop();
});

test('a responder whose reply is not JSON reports no conflict with one that was faster', async () => {
  const server = await started();
  const slow = server.client();
  const reported: string[] = [];
  slow.on('error', (error) => reported.push((error as { code: string }).code));
  let go = (): void => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  await respond(server.client(), TOPIC, () => 'first');
  await respond(slow, TOPIC, async () => {
    await gate;
    return () => 'no JSON';
  });
  const reply = await within(server, request(server.client(), TOPIC, 1));
  assert.equal(reply.data, 'first');
  go();
  await server.clock.advance(1_000);
  assert.deepEqual(reported, ['invalid_payload']);
  await server.stop();
});

test('a reply survives a lost connection of both sides', async () => {
  const server = await started();
  let go = (): void => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  await respond(server.client(), TOPIC, async (message) => {
    await gate;
    return add(message);
  });
  const asked = request(server.client(), TOPIC, [4, 5], { timeout: 60_000 });
  await server.clock.advance(1_000);
  server.cut();
  go();
  assert.equal((await within(server, asked)).data, 9);
  await server.stop();
});

test('a retry gets the late reply, and the work is done once', async () => {
  const server = await started();
  let calls = 0;
  let go = (): void => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  await respond(server.client(), TOPIC, async () => {
    calls += 1;
    await gate;
    return 'done';
  });
  const client = server.client();
  const first = request(client, TOPIC, 1, { timeout: 1_000, id: 'r1' });
  await assert.rejects(within(server, first), RequestTimeout);
  const retry = request(client, TOPIC, 1, { timeout: 30_000, id: 'r1' });
  await server.clock.advance(1_000);
  go();
  assert.equal((await within(server, retry)).data, 'done');
  assert.equal(calls, 1);
  await server.stop();
});

test('a late reply does not answer a request on another topic', async () => {
  const server = await started();
  let go = (): void => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  await respond(server.client(), 'demo.reserve', () => gate.then(() => 'reserved'));
  await respond(server.client(), 'demo.charge', () => 'charged');
  const client = server.client();
  const id = 'order-7';
  const late = request(client, 'demo.reserve', 1, { timeout: 1_000, id });
  await assert.rejects(within(server, late), RequestTimeout);
  go();
  await server.clock.advance(1_000);
  assert.equal((await within(server, request(client, 'demo.charge', 1, { id }))).data, 'charged');
  assert.equal((await within(server, request(client, 'demo.reserve', 1, { id }))).data, 'reserved');
  await server.stop();
});

test('a request waits longer than other operations for a connection', async () => {
  const server = await started();
  await respond(server.client(), TOPIC, add);
  const client = server.client({ operationTimeout: 1_000 });
  const refusing = server.refusing();
  const asked = request(client, TOPIC, [1, 2], { timeout: 60_000 });
  await server.clock.advance(10_000);
  refusing[Symbol.dispose]();
  assert.equal((await within(server, asked)).data, 3);
  await server.stop();
});

test('requests that time out in an outage leave a bounded number of reply topics', async () => {
  const server = await started();
  const client = server.client();
  const refusing = server.refusing();
  for (let n = 0; n < 120; n += 1) {
    const asked = request(client, `demo.sum-${n}`, null, { timeout: 20 });
    await assert.rejects(within(server, asked), RequestTimeout);
  }
  assert.equal(driverOf(client)._background?.deliveries.inboxes.size, 100);
  refusing[Symbol.dispose]();
  await server.stop();
});

test('a retry returns the reply to a call that its signal ended', async () => {
  const server = await started();
  const client = server.client();
  let calls = 0;
  let answer = (_: string): void => {};
  const answered = new Promise<string>((resolve) => {
    answer = resolve;
  });
  const handle = (): Promise<string> => {
    calls += 1;
    return answered;
  };
  await respond(server.client(), TOPIC, handle);
  const controller = new AbortController();
  const { signal } = controller;
  const first = request(client, TOPIC, 1, { timeout: 30_000, id: 'r1', signal });
  first.catch(() => {});
  await server.clock.advance(1_000);
  controller.abort(new Error('no longer'));
  await assert.rejects(within(server, first), /no longer/);
  answer('done');
  await server.clock.advance(1_000);
  const retry = request(client, TOPIC, 1, { timeout: 30_000, id: 'r1' });
  assert.equal((await within(server, retry)).data, 'done');
  assert.equal(calls, 1);
  await server.stop();
});

test('a retry returns the reply that arrived as the signal of the call was aborted', async () => {
  const server = await started();
  const responder = await respond(server.client(), TOPIC, add, { allow: () => true });
  const client = server.client();
  const replyTo = 'demo.chosen';
  let aborting = new AbortController();
  let steps = 0;
  const onMessage = async (): Promise<void> => {
    for (let step = 0; step < steps; step += 1) await undefined;
    aborting.abort(new Error('of no use'));
  };
  // This subscription receives the reply, too.
  await client.subscribe(replyTo, { onMessage });
  for (steps = 0; steps < 5; steps += 1) {
    const again = { id: `r${steps}`, replyTo };
    aborting = new AbortController();
    const { signal } = aborting;
    const given = request(client, TOPIC, [1, 2], { ...again, signal });
    const retried = given.catch(() => request(client, TOPIC, [1, 2], again));
    assert.equal((await within(server, retried)).data, 3);
  }
  await responder.close();
  await server.stop();
});

test('a request that cannot be sent times out, and was certainly not sent', async () => {
  const server = await started();
  using _ = server.refusing();
  for (const timeout of [3_000, undefined]) {
    const asked = request(server.client(), TOPIC, null, { id: 'r1', timeout });
    await assert.rejects(within(server, asked), (error) => {
      assert.ok(error instanceof RequestTimeout);
      assert.deepEqual([error.id, error.outcomeUnknown], ['r1', false]);
      return true;
    });
  }
  await server.stop();
});

test('a retry returns a reply that arrived between the two calls, without a second request', async () => {
  const server = await started();
  let answer = (): void => {};
  await respond(
    server.client(),
    TOPIC,
    ({ data }) =>
      new Promise((resolve, reject) => {
        answer =
          data === 'fail' ? () => reject(new ReplyError('Sold out.')) : () => resolve('done');
      }),
  );
  const client = server.client();
  const ask = (id: string, data: string) =>
    within(server, request(client, TOPIC, data, { timeout: 1_000, id }));
  const requests = () => server.received.filter(({ type }) => type === 'publish').length;

  await assert.rejects(ask('r1', 'succeed'), RequestTimeout);
  answer();
  await server.clock.advance(1_000);
  const before = requests();
  assert.equal((await ask('r1', 'succeed')).data, 'done');
  assert.equal(requests(), before);

  await assert.rejects(ask('r2', 'fail'), RequestTimeout);
  answer();
  await server.clock.advance(1_000);
  await assert.rejects(ask('r2', 'fail'), { name: 'ReplyError', message: 'Sold out.' });
  await server.stop();
});

test('late replies to the last hundred requests are kept, and older ones are forgotten', async () => {
  const server = await started();
  let calls = 0;
  const answers: (() => void)[] = [];
  await respond(
    server.client(),
    TOPIC,
    ({ data }) => {
      calls += 1;
      return new Promise((resolve) => answers.push(() => resolve(data)));
    },
    { concurrency: 1_000 },
  );
  const client = server.client();
  const ask = (n: number) => request(client, TOPIC, n, { timeout: 1_000, id: `r${n}` });
  const all = Array.from({ length: 101 }, (_, n) => ask(n).catch((error) => error));
  for (const error of await within(server, Promise.all(all))) {
    assert.ok(error instanceof RequestTimeout);
  }
  assert.equal(calls, 101);
  for (const answer of answers) answer();
  await server.clock.advance(1_000);
  assert.equal((await within(server, ask(1))).data, 1);
  assert.equal((await within(server, ask(100))).data, 100);
  await assert.rejects(within(server, ask(0)), RequestTimeout);
  await server.stop();
});

test('an id that still waits for its reply is refused for a second request', async () => {
  const server = await started();
  const client = server.client();
  const first = request(client, TOPIC, 1, { id: 'r1', timeout: 1_000 });
  first.catch(() => {});
  await assert.rejects(request(client, TOPIC, 2, { id: 'r1' }), (error) => {
    assert.ok(error instanceof InvalidOption);
    assert.equal(error.field, 'id');
    return true;
  });
  await assert.rejects(within(server, first), RequestTimeout);
  await server.stop();
});

test('a client stays subscribed to the hundred reply topics that it used last', async () => {
  const server = await started();
  await respond(server.client(), 'demo.*', add, { allow: () => true });
  const client = server.client();
  const ask = (n: number) =>
    within(server, request(client, TOPIC, [n], { replyTo: `replies.${n}` }));
  const left = () =>
    server.received.filter(({ type }) => type === 'unsubscribe').flatMap(({ topics }) => topics);
  for (let n = 0; n < 100; n += 1) await ask(n);
  await ask(0);
  assert.deepEqual(left(), []);
  assert.equal((await ask(100)).data, 100);
  await server.clock.advance(1_000);
  assert.deepEqual(left(), ['replies.1']);
  // The topic that it left is subscribed to again when it is needed.
  assert.equal((await ask(1)).data, 1);
  await server.stop();
});

test('a reply topic with a request that waits is kept, however long it has not been used', async () => {
  const server = await started();
  await respond(server.client(), 'demo.*', add, { allow: () => true });
  const client = server.client();
  const unanswered = request(client, 'other.sum', [], { replyTo: 'replies.old', timeout: 600_000 });
  unanswered.catch(() => {});
  for (let n = 0; n < 100; n += 1) {
    await within(server, request(client, TOPIC, [n], { replyTo: `replies.${n}` }));
  }
  await server.clock.advance(1_000);
  assert.deepEqual(
    server.received.filter(({ type }) => type === 'unsubscribe').flatMap(({ topics }) => topics),
    ['replies.0'],
  );
  await server.stop();
});

test('a request whose reply topic may not be read is refused, and can be made again', async () => {
  let mayRead = false;
  const rules = { maySubscribe: (_: unknown, topic: string) => mayRead || topic === TOPIC };
  const server = await new MemoryServer({ rules }).start();
  await respond(server.client(), TOPIC, add);
  const client = server.client();
  await assert.rejects(within(server, request(client, TOPIC, [1])), PermissionDenied);
  mayRead = true;
  assert.equal((await within(server, request(client, TOPIC, [1, 2]))).data, 3);
  await server.stop();
});

test('a responder replies only below its topic or its sender', async () => {
  const server = await started();
  const client = server.client();
  await respond(server.client(), TOPIC, add);
  const asked = request(client, TOPIC, [1], { replyTo: 'demo.victim', timeout: 1_000 });
  await assert.rejects(within(server, asked), RequestTimeout);
  await respond(server.client(), 'demo.open', add, { allow: (_, name) => name === 'demo.chosen' });
  const reply = await within(server, request(client, 'demo.open', [1], { replyTo: 'demo.chosen' }));
  assert.equal(reply.topic, 'demo.chosen');
  await server.stop();
});

test('a user whose id has a dot gets no reply on topics of another user', () => {
  const from = (id: string): Message =>
    ({ topic: TOPIC, sender: { type: 'user', id } }) as unknown as Message;
  assert.equal(isOwnReplyTopic(from('ann'), 'user.ann.lee.replies'), true);
  assert.equal(isOwnReplyTopic(from('ann.lee'), 'user.ann.lee.replies'), false);
  assert.equal(isOwnReplyTopic(from('ann'), 'user.ann'), false);
  assert.equal(isOwnReplyTopic({ topic: TOPIC } as Message, 'user'), false);
});

test('a responder that cannot decide where to reply publishes nothing', async () => {
  const server = await started();
  const client = server.client();
  const reported: string[] = [];
  client.on('error', ({ message }) => reported.push(message));
  const throws = (): boolean => {
    throw new RangeError('no decision');
  };
  const asynchronous = (async () => true) as unknown as () => boolean;
  for (const allow of [throws, asynchronous]) await respond(client, TOPIC, add, { allow });
  const victim = await server.client().subscribe('demo.victim');
  const asked = request(server.client(), TOPIC, [1], { replyTo: 'demo.victim', timeout: 1_000 });
  await assert.rejects(within(server, asked), RequestTimeout);
  assert.equal(victim.stats.received, 0);
  assert.deepEqual(reported, ['no decision', '`allow` returned a promise.']);
  await server.stop();
});

test('a responder handles as many requests at once as allowed', async () => {
  const server = await started();
  let running = 0;
  let most = 0;
  const gates: (() => void)[] = [];
  await respond(
    server.client(),
    TOPIC,
    async () => {
      most = Math.max(most, ++running);
      await new Promise<void>((resolve) => gates.push(resolve));
      running -= 1;
    },
    { concurrency: 2 },
  );
  const client = server.client();
  const asked = Array.from({ length: 5 }, (_, n) => request(client, TOPIC, n, { timeout: 60_000 }));
  const all = Promise.all(asked);
  await server.clock.advance(1_000);
  assert.equal(running, 2);
  let isDone = false;
  all.finally(() => {
    isDone = true;
  });
  while (!isDone) {
    for (const open of gates.splice(0)) open();
    await server.clock.advance(20);
  }
  assert.equal(most, 2);
  await server.stop();
});

test('closing the client and a signal end a request', async () => {
  const server = await started();
  const client = server.client();
  const asked = request(client, TOPIC, 1, { timeout: 60_000 });
  asked.catch(() => {});
  await server.clock.advance(1_000);
  const controller = new AbortController();
  const aborted = request(client, TOPIC, 2, { signal: controller.signal });
  aborted.catch(() => {});
  controller.abort(new Error('no longer'));
  await assert.rejects(within(server, aborted), /no longer/);
  await client.close();
  await assert.rejects(within(server, asked), ClosedError);
  await server.stop();
});

test('arguments are checked', async () => {
  const server = await started();
  const client = server.client();
  for (const [topic, replyTo] of [['demo.*'], [TOPIC, 'demo.*']] as const) {
    await assert.rejects(request(client, topic, 1, { replyTo }), (error) => {
      assert.ok(error instanceof InvalidTopic);
      assert.equal(error.message, "The topic 'demo.*' has the wildcard '*' at character 6.");
      return true;
    });
  }
  await assert.rejects(request(client, `demo.${'x'.repeat(249)}`, 1), /too long/);
  for (const id of ['', 'x'.repeat(126)]) {
    await assert.rejects(request(client, TOPIC, 1, { id }), InvalidOption);
  }
  await assert.rejects(respond(client, TOPIC, add, { concurrency: 0 }), /concurrency/);
  await server.stop();
});

test('a request whose reply topic is granted too late is not sent', async () => {
  const { ps, peer, clock } = virtualClient();
  await ps.connect();
  peer.silent.add('subscribe');
  const asked = request(ps, TOPIC, [1], { timeout: 300 }).catch((error) => error);
  await clock.advance(300);
  const error = await asked;
  assert.ok(error instanceof RequestTimeout);
  assert.equal(error.outcomeUnknown, false);
  peer.silent.clear();
  const { socket } = peer;
  for (const answer of peer.answer(socket.frames('subscribe')[0] ?? {})) socket.receive(answer);
  await turns();
  assert.deepEqual(socket.frames('publish'), []);
  await ps.close();
});
