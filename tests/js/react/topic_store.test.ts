import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AuthError, type Message, type PresenceMember } from '../../../js/src/index.js';
import type { Hooks } from '../../../js/src/react/index.js';
import { createStore } from '../../../js/src/react/topic_store.js';
import { CURRENT, turns, virtualClient } from '../runtime/virtual.js';
import { Beat, makeStore, message, settle } from './stand_in.js';

const nothing = (): void => {};

test('components that mount together share one subscription, with presence if one asks for it', async () => {
  const { store, asked } = makeStore();
  store.use({ history: 5 }, nothing);
  store.use({ history: 9 }, nothing);
  store.use(undefined, nothing);
  await settle();
  assert.equal(asked.length, 1);
  assert.deepEqual(asked[0]?.topics, ['a.b']);
  const { history, presence } = asked[0]?.options ?? {};
  assert.deepEqual([history, presence], [5, true]);
});

test('presence that is requested later uses a separate subscription and does not disturb the messages', async () => {
  const { store, beat, asked } = makeStore();
  store.use({ history: 5 }, nothing);
  await settle();
  await asked[0]?.bring(message(1));
  beat.draw();
  store.use(undefined, nothing);
  await null;
  beat.draw();
  assert.equal(store.state.status, 'live');
  await settle();
  assert.deepEqual([asked.length, asked[1]?.options.presence], [2, true]);
  assert.equal(asked[1]?.options.history, undefined);
  await asked[1]?.bring(message(1));
  beat.draw();
  assert.deepEqual(
    store.state.messages.map(({ data }) => data),
    [1],
  );
});

test('an immediate remount keeps the subscription', async () => {
  const { store, beat, asked, ended } = makeStore();
  for (let turn = 0; turn < 50; turn += 1) store.use({}, nothing)();
  const leave = store.use({}, nothing);
  await settle();
  leave();
  beat.pass(499);
  store.use({}, nothing);
  beat.pass(500);
  assert.deepEqual([asked.length, ended()], [1, 0]);
  assert.equal(asked[0]?.options.signal.aborted, false);
});

test('the subscription ends some time after the last unmount', async () => {
  const { store, beat, asked, ended } = makeStore();
  const leave = [() => {}, () => {}].map((changed) => store.use({}, changed));
  await settle();
  leave[0]?.();
  beat.pass(500);
  assert.equal(ended(), 0);
  leave[1]?.();
  beat.pass(500);
  assert.equal(ended(), 1);
  assert.equal(asked[0]?.options.signal.aborted, true);
});

test('a component that unmounts at once never subscribes', async () => {
  const { store, beat, asked } = makeStore();
  store.use({}, nothing)();
  await settle();
  beat.pass(500);
  assert.equal(asked.length, 0);
});

test('many messages are shown in one frame, the newest of them', async () => {
  const { store, beat, asked } = makeStore();
  let reported = 0;
  store.use({ limit: 3 }, () => {
    reported += 1;
  });
  await settle();
  beat.draw();
  assert.equal(reported, 1);
  const before = store.state;
  await asked[0]?.bring(...Array.from({ length: 100 }, (_, n) => message(n)));
  assert.equal(store.state, before);
  assert.equal(beat.frames.length, 1);
  beat.draw();
  assert.equal(reported, 2);
  assert.deepEqual(
    store.state.messages.map(({ data }) => data),
    [97, 98, 99],
  );
  assert.equal(store.state.last?.data, 99);
  await asked[0]?.bring(message(100));
  beat.draw();
  assert.deepEqual(
    store.state.messages.map(({ data }) => data),
    [98, 99, 100],
  );
});

test('a follower that begins within a message gets the next ones', async () => {
  const { store, asked } = makeStore();
  store.use({}, nothing);
  const got: unknown[] = [];
  const late = { message: ({ data }: Message) => void got.push(data), drawn: nothing };
  const leave = store.follow({ message: () => void store.follow(late), drawn: nothing });
  await settle();
  await asked[0]?.bring(message(1));
  leave();
  await asked[0]?.bring(message(2));
  assert.deepEqual(got, [2]);
});

test('the largest of several limits counts, and 0 keeps only the last message', async () => {
  const { store, beat, asked } = makeStore();
  store.use({ limit: 0 }, nothing);
  await settle();
  await asked[0]?.bring(message(1), message(2));
  beat.draw();
  assert.deepEqual([store.state.messages.length, store.state.last?.data], [0, 2]);
  store.use({ limit: 2 }, nothing);
  await asked[0]?.bring(message(3), message(4), message(5));
  beat.draw();
  assert.equal(store.state.messages.length, 2);
});

test('gaps and members are shown, and the list of messages keeps its identity without new ones', async () => {
  const { store, beat, asked } = makeStore();
  store.use({}, nothing);
  store.use(undefined, nothing);
  await settle();
  await asked[0]?.bring(message(1));
  beat.draw();
  const { messages } = store.state;
  const alice = { client_id: 'cl_1', user_id: 'alice', name: 'Alice', joined_at: 1, last_seen: 1 };
  const gap = { topic: 'a.b', from: 2, to: 3, missed: 2, reason: 'history_trimmed' } as const;
  await asked[0]?.bring(
    { kind: 'gap', gap },
    {
      kind: 'presence',
      presence: { topic: 'a.b', members: [alice], change: 'snapshot', member: undefined },
    },
  );
  beat.draw();
  assert.deepEqual(store.state.gap, gap);
  assert.deepEqual([...store.state.members], [['cl_1', alice]]);
  assert.equal(store.state.messages, messages);
});

test('a topic of a pattern costs nothing after its last member has left', async () => {
  const { store, asked } = makeStore();
  store.use(undefined, nothing);
  await settle();
  let reads = 0;
  const none = new Proxy<PresenceMember[]>([], {
    get(target, name) {
      reads += 1;
      return Reflect.get(target, name);
    },
  });
  const presence = { members: none, change: 'snapshot', member: undefined } as const;
  await asked[0]?.bring({ kind: 'presence', presence: { ...presence, topic: 'a.brief' } });
  const before = reads;
  assert.ok(before > 0);
  const other = { ...presence, topic: 'a.other', members: [] };
  await asked[0]?.bring({ kind: 'presence', presence: other });
  assert.equal(reads, before);
});

test('the error that ends a subscription is shown', async () => {
  const { store, beat, asked } = makeStore();
  store.use({}, nothing);
  await settle();
  await asked[0]?.fail(new Error('refused'));
  beat.draw();
  assert.deepEqual([store.state.status, store.state.error?.message], ['failed', 'refused']);
});

test('a retry subscribes again from the last position, and only once', async () => {
  const { store, beat, asked } = makeStore();
  store.use({ history: 20 }, nothing);
  store.retry();
  await settle();
  assert.equal(asked.length, 1);
  await asked[0]?.fail(new Error('refused'));
  beat.draw();
  store.retry();
  store.retry();
  beat.draw();
  assert.deepEqual([store.state.status, store.state.error], ['joining', undefined]);
  await settle();
  beat.draw();
  assert.equal(store.state.status, 'live');
  assert.equal(asked.length, 2);
  const { history, after } = (asked[1]?.options ?? {}) as { history?: unknown; after?: unknown };
  assert.deepEqual([history, after], [undefined, { 'a.b': 7 }]);
});

test('failed presence is retried while messages continue', async () => {
  const { store, beat, asked } = makeStore();
  store.use({}, nothing);
  await settle();
  store.use(undefined, nothing);
  await settle();
  await asked[1]?.fail(new Error('lost'));
  beat.draw();
  assert.equal(store.state.status, 'failed');
  store.retry();
  beat.draw();
  assert.deepEqual([store.state.status, store.state.error], ['live', undefined]);
  await settle();
  assert.deepEqual([asked.length, asked[2]?.options.presence], [3, true]);
});

test('no members are shown after the subscription has ended', async () => {
  const alice = { client_id: 'cl_1', user_id: 'alice', name: 'Alice', joined_at: 1, last_seen: 1 };
  const presence = {
    topic: 'a.b',
    members: [alice],
    change: 'snapshot',
    member: undefined,
  } as const;
  for (const ending of ['end', 'fail'] as const) {
    const { store, beat, asked } = makeStore();
    store.use(undefined, nothing);
    await settle();
    await asked[0]?.bring({ kind: 'presence', presence });
    beat.draw();
    assert.equal(store.state.members.size, 1);
    await asked[0]?.[ending](new Error('gone'));
    beat.draw();
    assert.equal(store.state.members.size, 0, ending);
  }
});

test('hooks have the payload types of their topics', () => {
  const use = (hooks: Hooks<{ 'chat.a': { readonly text: string } }>): void => {
    const { last, publish } = hooks.useTopic('chat.a');
    const text: string | undefined = last?.data.text;
    void publish({ data: { text: text ?? '' } });
    // @ts-expect-error the payload has no `words`
    void publish({ data: { words: '' } });
    // @ts-expect-error the payload has no `words`
    last?.data.words;
    hooks.useTopic('other').last?.data.anything;
  };
  assert.equal(typeof use, 'function');
});

test('the errors of hooks have the code and the remedy of the package', () => {
  const use = (hooks: Hooks<{ 'chat.a': { readonly text: string } }>): void => {
    const { error, pending } = hooks.useTopic('chat.a');
    const errors = [error, pending[0]?.error, hooks.usePresence('chat.a').error];
    const words: (string | undefined)[] = [...errors, hooks.useStream('chat.a').error].flatMap(
      (one) => [one?.code, one?.remedy],
    );
    void words;
  };
  assert.equal(typeof use, 'function');
});

for (const [words, token, code] of [
  ['that the server refuses', async () => 'bad', 'token_invalid'],
  [
    'that getToken cannot give',
    async () => {
      throw new TypeError('no session');
    },
    'token_unavailable',
  ],
] as const) {
  test(`a token ${words} is shown as the error until the server accepts one`, async () => {
    let isGood = false;
    const { ps, peer, clock } = virtualClient({
      getToken: async () => (isGood ? 'good' : token()),
      retry: { base: 10, cap: 10 },
    });
    peer.hello = () =>
      isGood ? CURRENT : { type: 'auth.error', code: 'token_invalid', message: 'it is bad' };
    const beat = new Beat();
    const store = createStore(ps, ['a.b'], beat, nothing);
    store.use({}, nothing);
    await clock.advance(100);
    beat.draw();
    assert.equal(store.state.status, 'joining');
    assert.ok(store.state.error instanceof AuthError);
    assert.equal((store.state.error as AuthError).code, code);

    // A component that subscribes later also receives it.
    const later = createStore(ps, ['c.d'], beat, nothing);
    later.use({}, nothing);
    await turns();
    beat.draw();
    assert.equal((later.state.error as AuthError).code, code);

    isGood = true;
    await clock.advance(100);
    beat.draw();
    assert.deepEqual([store.state.status, store.state.error], ['live', undefined]);

    isGood = false;
    peer.socket.drop();
    await clock.advance(100);
    beat.draw();
    assert.equal(store.state.status, 'joining');
    assert.equal((store.state.error as AuthError).code, code);

    // The same trouble stays the same object.
    const { error } = store.state;
    await clock.advance(100);
    beat.draw();
    assert.equal(store.state.error, error);
    await ps.close({ timeout: 0 });
  });
}

test('a topic is joining while there is no connection, and live again with the next one', async () => {
  const { ps, peer, clock } = virtualClient({ retry: { base: 10, cap: 10 } });
  const beat = new Beat();
  const store = createStore(ps, ['a.b'], beat, nothing);
  const seen: string[] = [];
  store.use({}, () => seen.push(store.state.status));
  const pass = async (): Promise<void> => {
    await clock.advance(100);
    beat.draw();
  };
  await pass();
  peer.isDown = true;
  peer.socket.drop();
  await pass();
  peer.isDown = false;
  await pass();
  assert.deepEqual(seen, ['live', 'joining', 'live']);
  await ps.close({ timeout: 0 });
});

test('a failed subscription is shown as failed until it is retried, also after a reconnect', async () => {
  const { ps, peer, clock } = virtualClient({ retry: { base: 10, cap: 10 } });
  const beat = new Beat();
  const store = createStore(ps, ['a.b'], beat, nothing);
  const pass = async (): Promise<void> => {
    await clock.advance(100);
    beat.draw();
  };
  store.use({}, nothing);
  await pass();
  const answer = peer.answer.bind(peer);
  peer.answer = (frame) =>
    frame['presence']
      ? [{ type: 'error', code: 'limit_exceeded', message: 'too many', ref: frame['ref'] }]
      : answer(frame);
  store.use(undefined, nothing);
  await pass();
  assert.equal(store.state.status, 'failed');
  const { error } = store.state;
  peer.socket.drop();
  await pass();
  assert.equal(ps.state, 'connected');
  assert.deepEqual([store.state.status, store.state.error], ['failed', error]);

  peer.answer = answer;
  peer.isDown = true;
  peer.socket.drop();
  await pass();
  store.retry();
  await pass();
  assert.deepEqual([store.state.status, store.state.error], ['joining', undefined]);
  peer.isDown = false;
  await pass();
  assert.equal(store.state.status, 'live');
  await ps.close({ timeout: 0 });
  await pass();
  assert.equal(store.state.status, 'idle');
});

test('an unreachable server is not an error of a topic', async () => {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  peer.isDown = true;
  const beat = new Beat();
  const store = createStore(ps, ['a.b'], beat, nothing);
  store.use({}, nothing);
  await clock.advance(5_000);
  beat.draw();
  assert.ok(ps.lastFailure);
  assert.deepEqual([store.state.status, store.state.error], ['joining', undefined]);
  await ps.close({ timeout: 0 });
});

test('the store keeps the requested number of messages', async () => {
  const { store, beat, asked } = makeStore();
  store.use({ history: 300 }, nothing);
  await settle();
  await asked[0]?.bring(...Array.from({ length: 400 }, (_, n) => message(n)));
  beat.draw();
  assert.equal(store.state.messages.length, 300);
});
