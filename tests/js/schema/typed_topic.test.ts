import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import * as v from 'valibot';
import * as z from 'zod';

import { InvalidOption, type PubSub, SchemaError } from '../../../js/src/index.js';
import {
  type StandardSchema,
  type TypedTopicOptions,
  typedTopic,
} from '../../../js/src/schema/index.js';
import { bounded, deferred, Server } from '../runtime/server.js';
import { turns, virtualClient } from '../runtime/virtual.js';

interface Order {
  readonly sku: string;
  readonly count: number;
}

const ORDERS: Readonly<Record<string, StandardSchema<Order>>> = {
  zod: z.object({ sku: z.string(), count: z.number() }),
  valibot: v.object({ sku: v.string(), count: v.number() }),
};
const [zod] = [ORDERS['zod'] as StandardSchema<Order>];

/** A client that is subscribed to `orders` with a schema, and receives these payloads. */
async function subscribed(options: Partial<TypedTopicOptions<StandardSchema<Order>, never>> = {}) {
  const { ps, peer } = virtualClient();
  const errors: Error[] = [];
  ps.on('error', (error) => errors.push(error));
  const orders = typedTopic(ps, 'orders', { schema: zod, ...options });
  const pending = orders.subscribe();
  await turns();
  const sub = await pending;
  const send = (...payloads: unknown[]): void => {
    for (const data of payloads) peer.socket.receive(peer.message('orders', data));
  };
  return { ps, peer, orders, sub, errors, send };
}

for (const [library, schema] of Object.entries(ORDERS)) {
  test(`a payload that matches goes both ways, and one that does not is a schema error: ${library}`, async (t) => {
    const server = await Server.start();
    t.after(() => server.stop());
    const logger = { warn: () => {}, error: () => {} };
    const ps = server.client({ token: server.token('--user', 'alice', '--service'), logger });
    const orders = typedTopic(ps, 'demo.orders', { schema });
    const sub = await orders.subscribe();
    await orders.publish({ type: 'order.created', data: { sku: 'a-1', count: 2 } });
    const { id } = await ps.publish('demo.orders', { data: { sku: 'secret', count: 'many' } });
    await orders.publish({ data: { sku: 'a-2', count: 3 } });
    const messages = sub[Symbol.asyncIterator]();
    const first = await bounded(messages.next(), 'the first order');
    const order: Order | undefined = first.value?.data;
    assert.deepEqual([first.value?.type, order], ['order.created', { sku: 'a-1', count: 2 }]);
    await assert.rejects(messages.next(), (error: SchemaError) => {
      assert.ok(error instanceof SchemaError);
      assert.deepEqual(
        [error.code, error.topic, error.field, error.id],
        ['schema', 'demo.orders', 'data.count', id],
      );
      assert.match(error.message, /`data.count` is a string, which is not valid/);
      assert.equal(error.issues?.length, 1);
      assert.doesNotMatch(`${error.stack}${JSON.stringify(error)}`, /secret|many/);
      return true;
    });
    const next = await bounded(messages.next(), 'the message behind it');
    assert.deepEqual(next.value?.data, { sku: 'a-2', count: 3 });

    const history: unknown[] = [];
    const kept = typedTopic(ps, 'demo.orders', { schema, onInvalid: 'skip' }).history();
    for await (const { data } of kept) history.push(data);
    assert.deepEqual(history, [
      { sku: 'a-1', count: 2 },
      { sku: 'a-2', count: 3 },
    ]);

    const wrong = { sku: 'a-1' } as unknown as Order;
    await assert.rejects(orders.publish({ data: wrong }), (error: SchemaError) => {
      assert.deepEqual([error.field, error.id], ['data.count', undefined]);
      assert.match(error.message, /`data.count` is missing/);
      return true;
    });
    let count = 0;
    for await (const _ of ps.history('demo.orders')) count += 1;
    assert.equal(count, 3, 'what does not match is not published');
  });
}

test('`skip` skips and reports invalid payloads', async () => {
  const { sub, errors, send } = await subscribed({ onInvalid: 'skip' } as never);
  send({ sku: 1, count: 'x' }, { sku: 'a', count: 1 });
  const messages = sub[Symbol.asyncIterator]();
  assert.deepEqual((await messages.next()).value?.data, { sku: 'a', count: 1 });
  await turns();
  assert.deepEqual(
    errors.map((error) => [(error as SchemaError).code, (error as SchemaError).field]),
    [['schema', 'data.sku']],
  );
});

test('`raw` delivers invalid payloads unchanged', async () => {
  const { sub, errors, send } = await subscribed({ onInvalid: 'raw' } as never);
  send({ sku: 1 }, { sku: 'a', count: 1 });
  const messages = sub[Symbol.asyncIterator]();
  assert.deepEqual((await messages.next()).value?.data, { sku: 1 });
  assert.deepEqual((await messages.next()).value?.data, { sku: 'a', count: 1 });
  assert.deepEqual(errors, []);
});

test('events have payloads of the schema, and gaps stay in their place', async () => {
  const { sub, send } = await subscribed();
  const events = sub.events();
  send({ sku: 'a', count: 1 });
  const event = (await events.next()).value;
  assert.equal(event?.kind === 'message' && event.message.data.sku, 'a');
});

test('a handler gets only payloads that match, in order, and errors go to the listeners', async () => {
  const { ps, peer } = virtualClient();
  const errors: Error[] = [];
  ps.on('error', (error) => errors.push(error));
  const seen: number[] = [];
  const three = deferred<void>();
  // The first check takes longer than the next ones.
  const slow = z.object({ n: z.number() }).refine(async ({ n }) => {
    if (n === 1) await turns(3);
    return true;
  });
  const pending = typedTopic(ps, 'orders', { schema: slow }).subscribe({
    onMessage: ({ data }) => {
      seen.push(data.n);
      if (data.n === 3) three.resolve();
    },
  });
  await turns();
  await pending;
  for (const data of [{ n: 1 }, { n: 'x' }, { n: 3 }]) {
    peer.socket.receive(peer.message('orders', data));
  }
  await bounded(three.promise, 'the last message');
  assert.deepEqual(seen, [1, 3]);
  assert.deepEqual(
    errors.map((error) => (error as SchemaError).field),
    ['data.n'],
  );
});

test('a received payload is the output of the schema, and a published one is sent unchanged', async () => {
  const { ps, peer } = virtualClient();
  const schema = z.object({ at: z.iso.datetime().transform((at) => new Date(at)) });
  const times = typedTopic(ps, 'times', { schema });
  const pending = times.subscribe();
  await turns();
  const sub = await pending;
  await times.publish({ data: { at: '2026-01-01T00:00:00Z' } });
  const [sent] = peer.socket.frames('publish') as { message: { data: unknown } }[];
  assert.deepEqual(sent?.message.data, { at: '2026-01-01T00:00:00Z' });
  peer.socket.receive(peer.message('times', sent?.message.data));
  const { value } = await sub[Symbol.asyncIterator]().next();
  assert.equal(value?.data.at.getTime(), Date.UTC(2026, 0, 1));
});

test('an error names the first invalid fields by path, and counts the rest', async () => {
  const { ps } = virtualClient();
  const schema = z.object({ items: z.array(z.object({ sku: z.string() })), note: z.string() });
  const lists = typedTopic(ps, 'lists', { schema });
  const items = [{ sku: 'a' }, { sku: 1 }, {}, null];
  await assert.rejects(lists.publish({ data: { items, note: null } as never }), {
    field: 'data.items[1].sku',
    message:
      'A publish to `lists` does not match its schema: `data.items[1].sku` is a number, ' +
      'which is not valid; `data.items[2].sku` is missing; `data.items[3]` is null, which is not ' +
      'valid; and 1 more.',
  });
});

test('a change of presence is published without a check', async () => {
  const { ps, peer } = virtualClient();
  const orders = typedTopic(ps, 'orders', { schema: zod });
  await orders.publish({ type: 'presence.update', data: { status: 'typing' } as never });
  assert.equal(peer.sockets.length, 1);
});

test('a typed subscription shows the state of the subscription behind it', async () => {
  const { sub, send } = await subscribed();
  send({ sku: 'a', count: 1 }, { sku: 'b', count: 'many' }, { sku: 'c', count: 3 });
  const messages = sub[Symbol.asyncIterator]();
  assert.equal((await messages.next()).value?.data.sku, 'a');
  await assert.rejects(messages.next(), SchemaError);
  assert.deepEqual([sub.topics, sub.denied, sub.active], [['orders'], [], true]);
  assert.deepEqual(sub.positions, { orders: 2 });
  const { received, handled, queued } = sub.stats;
  assert.deepEqual([received, handled, queued], [3, 2, 1]);
});

test('leaving the loop or the block unsubscribes a typed subscription', async () => {
  const { orders, sub, peer, send } = await subscribed();
  send({ sku: 'a', count: 1 }, { sku: 'b', count: 2 });
  for await (const { data } of sub) {
    assert.deepEqual(data, { sku: 'a', count: 1 });
    break;
  }
  assert.equal(sub.active, false);
  assert.deepEqual(await sub[Symbol.asyncIterator]().next(), { done: true, value: undefined });

  const pending = orders.subscribe();
  await turns();
  const other = await pending;
  assert.ok(other.active);
  await other[Symbol.asyncDispose]();
  assert.equal(other.active, false);
  await turns();
  assert.deepEqual(
    peer.socket.frames('unsubscribe').map(({ topics }) => topics),
    [['orders'], ['orders']],
  );
});

test('other schemas and policies are refused', () => {
  const { ps } = virtualClient();
  const make = (options: unknown) => () => typedTopic(ps, 'orders', options as never);
  assert.throws(make({ schema: { parse: () => {} } }), InvalidOption);
  assert.throws(make({ schema: zod, onInvalid: 'ignore' }), InvalidOption);
  assert.throws(make({ schema: zod, onInvald: 'skip' }), { remedy: 'Write `onInvalid`.' });
  assert.throws(make(zod), InvalidOption);
});

test('types follow the schema', () => {
  const use = async (ps: PubSub): Promise<void> => {
    const schema = z.object({ count: z.coerce.number<string>() });
    const typed = typedTopic(ps, 'a', { schema });
    await typed.publish({ data: { count: '1' } });
    // @ts-expect-error the payload on the wire is a string
    await typed.publish({ data: { count: 1 } });
    for await (const { data } of await typed.subscribe()) {
      const count: number = data.count;
      // @ts-expect-error there is no such member
      void [count, data.price];
    }
    for await (const { data } of typedTopic(ps, 'a', { schema, onInvalid: 'raw' }).history()) {
      // @ts-expect-error what came may be anything
      void data.count;
    }
    const spec = zod as StandardSchemaV1<Order>;
    for await (const { data } of typedTopic(ps, 'a', { schema: spec }).history()) {
      const order: Order = data;
      void order;
    }
  };
  assert.ok(use);
});
