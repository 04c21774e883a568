import assert from 'node:assert/strict';
import { test } from 'node:test';

import { InvalidPayload, type PubSub, RateLimited, UsageError } from '../../../js/src/index.js';
import type { Hooks } from '../../../js/src/react/index.js';
import {
  createStore,
  type TopicState,
  type TopicStore,
} from '../../../js/src/react/topic_store.js';
import type { SubscriptionEvent } from '../../../js/src/values.js';
import { bounded, Server } from '../runtime/server.js';
import { Beat, makeStore, settle } from './stand_in.js';

function delivered(id: string, seq: number): SubscriptionEvent {
  return {
    kind: 'message',
    message: { id, topic: 'a.b', type: 'message', data: id, timestamp: 1, seq },
  };
}

/** A store with the subscription of a component. */
async function open(): Promise<ReturnType<typeof makeStore>> {
  const made = makeStore();
  made.store.use({}, () => {});
  await settle();
  made.beat.draw();
  return made;
}

/** The ids of all messages, then id and status of the pending ones. */
function shown({ state }: TopicStore): readonly string[] {
  const pending = state.pending.map(({ id, status }) => `${id} ${status}`);
  return [...state.messages.map(({ id }) => id), ...pending];
}

test('a sent message is shown at once, and replaced by the delivered one', async () => {
  const { store, beat, asked, sent } = await open();
  const id = store.send({ type: 'chat', data: { text: 'hello' } });
  beat.draw();
  const { pending } = store.state;
  assert.deepEqual(
    pending.map(({ topic, type, data, status }) => [topic, type, data, status]),
    [['a.b', 'chat', { text: 'hello' }, 'sending']],
  );
  assert.equal(sent[0]?.message.id, id);
  await sent[0]?.accept(7);
  beat.draw();
  assert.deepEqual(shown(store), [`${id} sent`]);
  await asked[0]?.bring(delivered(id, 7));
  assert.deepEqual(shown(store), [`${id} sent`], 'until the next frame');
  beat.draw();
  assert.deepEqual(shown(store), [id]);
});

test('a message without data is rejected at once, and not shown', async () => {
  const { store, beat, sent } = await open();
  for (const message of ['hello', null, undefined, { text: 'hello' }]) {
    assert.throws(() => store.send(message as never), InvalidPayload);
  }
  store.send({ id: 'one', data: null });
  beat.draw();
  assert.deepEqual(shown(store), ['one sending']);
  assert.equal(sent.length, 1);
});

test('a message delivered before its acknowledgement is shown once', async () => {
  const { store, beat, asked, sent } = await open();
  store.send({ id: 'one', data: 1 });
  await asked[0]?.bring(delivered('one', 7));
  beat.draw();
  assert.deepEqual(shown(store), ['one']);
  await sent[0]?.accept(7);
  beat.draw();
  assert.deepEqual(shown(store), ['one']);
});

test("messages of others don't move pending ones", async () => {
  const { store, beat, asked, sent } = await open();
  store.send({ id: 'one', data: 1 });
  store.send({ id: 'two', data: 2 });
  await sent[1]?.accept(9);
  await asked[0]?.bring(delivered('other', 8));
  beat.draw();
  assert.deepEqual(shown(store), ['other', 'one sending', 'two sent']);
});

test('a failed message has an error, and a retry publishes it with the same id', async () => {
  const { store, beat, asked, sent } = await open();
  store.send({ id: 'one', data: 1 }, { timeout: 5 });
  store.send({ id: 'two', data: 2 });
  await sent[0]?.reject(new RateLimited('too fast'));
  beat.draw();
  assert.deepEqual(shown(store), ['one failed', 'two sending']);
  assert.equal(store.state.pending[0]?.error?.message, 'too fast');
  store.state.pending[0]?.retry();
  store.state.pending[0]?.retry();
  beat.draw();
  assert.deepEqual(shown(store), ['one sending', 'two sending'], 'in its place');
  assert.equal(store.state.pending[0]?.error, undefined);
  assert.deepEqual(
    sent.map(({ message, options }) => [message.id, options.timeout]),
    [
      ['one', 5],
      ['two', undefined],
      ['one', 5],
    ],
  );
  await asked[0]?.bring(delivered('one', 7));
  beat.draw();
  assert.deepEqual(shown(store), ['one', 'two sending']);
});

test('a message whose publish seemed to fail is shown once if it is delivered later', async () => {
  const { store, beat, asked, sent } = await open();
  store.send({ id: 'one', data: 1 });
  await sent[0]?.reject(new Error('timeout'));
  await asked[0]?.bring(delivered('one', 7));
  beat.draw();
  assert.deepEqual(shown(store), ['one']);
});

test('a discarded message is withdrawn, and its outcome is not shown', async () => {
  const { store, beat, sent } = await open();
  store.send({ id: 'one', data: 1 });
  beat.draw();
  const [one] = store.state.pending;
  one?.discard();
  assert.equal(sent[0]?.options.signal?.aborted, true);
  await sent[0]?.reject(new Error('aborted'));
  one?.retry();
  beat.draw();
  assert.deepEqual([shown(store), sent.length], [[], 1]);
});

test('an accepted message is no longer pending after a gap or a later message', async () => {
  const { store, beat, asked, sent } = await open();
  for (const id of ['one', 'two', 'three']) store.send({ id, data: id });
  await sent[0]?.accept(7);
  await sent[1]?.accept(8);
  await sent[2]?.accept(9);
  const gap = { topic: 'a.b', from: 6, to: 7, missed: 2, reason: 'slow_consumer' } as const;
  await asked[0]?.bring({ kind: 'gap', gap });
  beat.draw();
  assert.deepEqual(shown(store), ['two sent', 'three sent']);
  await asked[0]?.bring(delivered('other', 9));
  beat.draw();
  assert.deepEqual(shown(store), ['other']);
});

test('an acknowledgement after later messages, or without a position, ends the pending state', async () => {
  const { store, beat, asked, sent } = await open();
  store.send({ id: 'one', data: 1 });
  store.send({ id: 'two', data: 2, ttl: 0 });
  await asked[0]?.bring(delivered('other', 8));
  await sent[0]?.accept(7);
  await sent[1]?.accept();
  beat.draw();
  assert.deepEqual(shown(store), ['other']);
});

test('an id is pending once, and the number of pending messages is bounded', async () => {
  const { store } = await open();
  store.send({ id: 'one', data: 1 });
  assert.throws(() => store.send({ id: 'one', data: 1 }), UsageError);
  for (let n = 1; n < 1_000; n += 1) store.send({ data: n });
  assert.throws(() => store.send({ data: 0 }), UsageError);
});

test('on a real server every message is delivered in the frame in which it stops being pending', async (t) => {
  const server = await Server.start();
  t.after(() => server.stop());
  const ps = server.client({ token: server.token('--user', 'alice', '--service') });
  const beat = new Beat();
  const store = createStore(ps as PubSub, ['demo.room'], beat, () => {});
  const states: TopicState[] = [];
  let wake = (): void => {};
  store.use({ limit: 10 }, () => {
    states.push(store.state);
    wake();
  });
  let over = false;
  t.after(() => {
    over = true;
  });
  const until = async (is: () => boolean): Promise<void> => {
    while (!is()) {
      if (over) return;
      beat.draw();
      await new Promise<void>((resolve) => {
        wake = resolve;
        setTimeout(resolve, 5);
      });
    }
  };
  await bounded(
    until(() => store.state.status === 'live'),
    'the subscription begins',
  );
  const ids = Array.from({ length: 20 }, (_, n) => store.send({ data: n }));
  store.send({ id: 'large', data: 'x'.repeat(300_000) });
  await bounded(
    until(() => store.state.messages.length === 10 && is('failed')),
    'all are settled',
  );
  function is(status: string): boolean {
    return store.state.pending.length === 1 && store.state.pending[0]?.status === status;
  }
  for (const { messages, pending } of states) {
    const all = [...messages, ...pending].map(({ id }) => id).filter((id) => id !== 'large');
    assert.equal(new Set(all).size, all.length, 'a message is shown twice');
  }
  assert.deepEqual(
    store.state.messages.map(({ id }) => id),
    ids.slice(10),
  );
});

test('the hook has the types of sent and pending payloads', () => {
  const use = (hooks: Hooks<{ 'chat.a': { readonly text: string } }>): void => {
    const { pending, send } = hooks.useTopic('chat.a');
    const text: string | undefined = pending[0]?.data.text;
    send({ data: { text: text ?? '' } });
    // @ts-expect-error the payload has no `words`
    send({ data: { words: '' } });
  };
  assert.ok(use);
});
