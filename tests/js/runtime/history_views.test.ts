import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createElement, type ReactNode } from 'react';
import { renderToString } from 'react-dom/server';
import { effectScope, nextTick, shallowRef } from 'vue';

import { join, prepend } from '../../../js/src/history/timeline.js';
import { type HistoryState, HistoryView } from '../../../js/src/history/view.js';
import { InvalidOption, type Message, type PubSub, Unavailable } from '../../../js/src/index.js';
import { PubSubProvider, useHistory as useReactHistory } from '../../../js/src/react/index.js';
import {
  type HistoryStore,
  historyStore,
  type LiveMessages,
} from '../../../js/src/svelte/index.js';
import { type UsedHistory, useHistory } from '../../../js/src/vue/index.js';
import { deferred } from './server.js';

const TOPIC = 'demo.room';

function message(seq: number): Message {
  return { id: `m${seq}`, topic: TOPIC, type: 't', data: seq, timestamp: seq, seq };
}

/** A message that no history has. */
function unnumbered(data: string, sender?: string): Message {
  return { ...plain(data), ttl: 0, ...(sender && { sender: { id: sender } as never }) };
}

/** A message of a server without positions. */
function plain(id: string): Message {
  return { id, topic: TOPIC, type: 't', data: id, timestamp: 0 };
}

/** A message of a log that has restarted. */
function restarted(seq: number): Message {
  return { ...message(seq), id: `n${seq}`, data: `n${seq}` };
}

function range(first: number, last: number): Message[] {
  return Array.from({ length: last - first + 1 }, (_, n) => message(first + n));
}

const dataOf = (messages: readonly Message[]): unknown[] => messages.map(({ data }) => data);

/** A client whose history has messages up to `last`, from 1, and a count of its requests. */
function clientOf(last: number) {
  const asked: { before: Message | undefined; limit: number; signal: AbortSignal }[] = [];
  const ends: unknown[] = [];
  let hold: Promise<unknown> = Promise.resolve();
  const client = {
    async *history(_: string, options: (typeof asked)[number]) {
      asked.push(options);
      await hold;
      options.signal.throwIfAborted();
      if (ends.length) throw ends.shift();
      const { before, limit } = options;
      yield* range(1, (before?.seq ?? last + 1) - 1).slice(-limit);
    },
  } as unknown as PubSub;
  return {
    client,
    asked,
    ends,
    wait(until: Promise<unknown>) {
      hold = until;
    },
  };
}

test('lists that overlap or follow each other are joined, each message once', () => {
  const joined = (earlier: Message[], later: Message[]): unknown => {
    const { messages, isCut } = join(earlier, later);
    return [dataOf(messages), isCut];
  };
  assert.deepEqual(joined(range(1, 3), range(2, 5)), [[1, 2, 3, 4, 5], false]);
  assert.deepEqual(joined(range(1, 3), range(4, 5)), [[1, 2, 3, 4, 5], false]);
  assert.deepEqual(joined(range(3, 4), range(1, 5)), [[1, 2, 3, 4, 5], false]);
  assert.deepEqual(joined(range(1, 5), range(2, 3)), [[1, 2, 3, 4, 5], false]);
  assert.deepEqual(joined([], range(2, 3)), [[2, 3], false]);
  assert.deepEqual(joined(range(1, 2), []), [[1, 2], false]);
  assert.deepEqual(joined(range(1, 3), range(5, 6)), [[5, 6], true]);
});

test('a message without a position stays in its place', () => {
  const live = [message(2), unnumbered('typing'), message(3)];
  assert.deepEqual(dataOf(join(range(1, 3), live).messages), [1, 2, 'typing', 3]);
  assert.equal(join(live, live).messages, live);
});

test('messages that are not stored neither remove loaded ones nor join lists', () => {
  const joined = (earlier: Message[], later: Message[]): unknown => {
    const { messages, isCut } = join(earlier, later);
    return [dataOf(messages), isCut];
  };
  const typing = unnumbered('typing');
  assert.deepEqual(joined(range(1, 3), [typing]), [[1, 2, 3, 'typing'], false]);
  assert.deepEqual(joined([typing], range(1, 2)), [['typing', 1, 2], false]);
  assert.deepEqual(joined(range(1, 3), [typing, message(4)]), [[1, 2, 3, 'typing', 4], false]);
  assert.deepEqual(joined([...range(1, 3), typing], range(4, 4)), [[1, 2, 3, 'typing', 4], false]);
  assert.deepEqual(joined(range(1, 3), [typing, ...range(3, 4)]), [[1, 2, 'typing', 3, 4], false]);
  assert.deepEqual(joined([...range(1, 3), typing], [typing, message(7)]), [['typing', 7], true]);
});

test('pages are shown while only messages that are not stored have arrived', async () => {
  const { client } = clientOf(5);
  const view = new HistoryView(client, TOPIC, { page: 2 });
  view.keep([unnumbered('typing')]);
  await view.loadOlder();
  assert.deepEqual(dataOf(view.read().messages), [4, 5, 'typing']);
  view.keep([unnumbered('idle')]);
  await view.loadOlder();
  assert.deepEqual(dataOf(view.read().messages), [2, 3, 4, 5, 'typing', 'idle']);
});

test('without positions, messages that arrive follow the loaded ones', () => {
  const { messages, isCut } = join([plain('a'), plain('b')], [plain('c')]);
  assert.deepEqual([dataOf(messages), isCut], [['a', 'b', 'c'], false]);
});

test('a log that restarted does not hide its new messages', () => {
  const both = [...range(2, 3), restarted(1), restarted(2)];
  assert.deepEqual(dataOf(join(range(1, 3), both).messages), [1, 2, 3, 'n1', 'n2']);
  const cut = join(range(1, 3), [restarted(1), restarted(2)]);
  assert.deepEqual([dataOf(cut.messages), cut.isCut], [['n1', 'n2'], true]);
});

test('lists of any length are joined', () => {
  const many = range(1, 200_000);
  assert.equal(join(range(1, 1), many).messages.length, 200_000);
  assert.equal(join(range(200_000, 200_000), many).messages.length, 200_000);
});

test('senders that share an id do not hide a message of each other', () => {
  const by = (id: string) => unnumbered(id, id);
  assert.deepEqual(dataOf(prepend([by('ann'), by('bob')], [by('bob')])), ['ann', 'bob']);
});

test('older messages are loaded page by page, until there are none', async () => {
  const { client, asked } = clientOf(10);
  const view = new HistoryView(client, TOPIC, { page: 3 });
  view.keep(range(9, 10));
  assert.equal(view.read().hasOlder, true);
  await view.loadOlder();
  assert.deepEqual(dataOf(view.read().messages), [6, 7, 8, 9, 10]);
  view.keep(range(10, 12));
  await view.loadOlder();
  assert.equal(view.read().hasOlder, true);
  await view.loadOlder();
  const { messages, hasOlder, loadingOlder, error } = view.read();
  assert.deepEqual(
    dataOf(messages),
    range(1, 12).map(({ data }) => data),
  );
  assert.deepEqual([hasOlder, loadingOlder, error], [false, false, undefined]);
  await view.loadOlder();
  assert.deepEqual(
    asked.map(({ before, limit }) => [before?.seq, limit]),
    [
      [9, 4],
      [6, 4],
      [3, 4],
    ],
  );
});

test('a second call while a page loads requests no other', async () => {
  const { client, asked } = clientOf(10);
  const view = new HistoryView(client, TOPIC, { page: 3 });
  const states: boolean[] = [];
  view.listen(() => states.push(view.read().loadingOlder));
  await Promise.all([view.loadOlder(), view.loadOlder()]);
  assert.equal(asked.length, 1);
  assert.deepEqual([states[0], states.at(-1)], [true, false]);
  assert.deepEqual(dataOf(view.read().messages), [8, 9, 10]);
});

test('an error of a page is shown until a page is loaded', async () => {
  const { client, ends } = clientOf(4);
  const view = new HistoryView(client, TOPIC, { page: 3 });
  const failure = new Unavailable('busy');
  ends.push(failure);
  await view.loadOlder();
  assert.equal(view.read().error, failure);
  assert.deepEqual([view.read().hasOlder, view.read().loadingOlder], [true, false]);
  await view.loadOlder();
  assert.equal(view.read().error, undefined);
  assert.deepEqual(dataOf(view.read().messages), [2, 3, 4]);
});

/** A view of messages 4 and 5, of 5, which gets others while a page loads. */
async function keptWhileLoading(others: Message[]): Promise<HistoryView> {
  const { client, wait } = clientOf(5);
  const gate = deferred<void>();
  wait(gate.promise);
  const view = new HistoryView(client, TOPIC, {});
  view.keep(range(4, 5));
  const loading = view.loadOlder();
  view.keep(others);
  gate.resolve();
  await loading;
  return view;
}

test('messages that arrive while a page loads stay after it', async () => {
  const view = await keptWhileLoading(range(4, 7));
  assert.deepEqual(dataOf(view.read().messages), [1, 2, 3, 4, 5, 6, 7]);
});

test('a page that no longer joins what is shown is not shown', async () => {
  const view = await keptWhileLoading(range(20, 21));
  assert.deepEqual(dataOf(view.read().messages), [20, 21]);
  assert.equal(view.read().hasOlder, true);
});

test('arriving messages remove as many of the oldest above the limit', async () => {
  const { client } = clientOf(6);
  const view = new HistoryView(client, TOPIC, { limit: 3 });
  view.keep(range(5, 6));
  await view.loadOlder();
  assert.equal(view.read().messages.length, 6);
  assert.equal(view.read().hasOlder, false);
  view.keep(range(5, 8));
  assert.deepEqual(dataOf(view.read().messages), [3, 4, 5, 6, 7, 8]);
  assert.equal(view.read().hasOlder, true);
});

test('the end of the last use cancels a page, and another use loads again', async () => {
  const { client, wait, asked } = clientOf(3);
  const gate = deferred<void>();
  wait(gate.promise);
  const view = new HistoryView(client, TOPIC, {});
  const leave = view.listen(() => {});
  const loading = view.loadOlder();
  leave();
  assert.equal(asked[0]?.signal.aborted, true);
  gate.resolve();
  await loading;
  assert.deepEqual([view.read().error, view.read().loadingOlder], [undefined, false]);
  view.listen(() => {});
  await view.loadOlder();
  assert.deepEqual(dataOf(view.read().messages), [1, 2, 3]);
});

test('another use loads at once, while the cancelled request has not ended', async () => {
  const { client, wait, asked } = clientOf(3);
  const gate = deferred<void>();
  wait(gate.promise);
  const view = new HistoryView(client, TOPIC, {});
  const leave = view.listen(() => {});
  const cancelled = view.loadOlder();
  leave();
  assert.equal(view.read().loadingOlder, false);
  const next = deferred<void>();
  wait(next.promise);
  view.listen(() => {});
  const loading = view.loadOlder();
  assert.equal(asked.length, 2);
  gate.resolve();
  await cancelled;
  assert.deepEqual([view.read().error, view.read().loadingOlder], [undefined, true]);
  assert.equal(view.loadOlder(), loading);
  next.resolve();
  await loading;
  assert.deepEqual(dataOf(view.read().messages), [1, 2, 3]);
  assert.equal(view.read().loadingOlder, false);
});

test('a cancelled page is not shown, even if its request succeeds', async () => {
  const gate = deferred<void>();
  const client = {
    async *history() {
      await gate.promise;
      yield* range(1, 3);
    },
  } as unknown as PubSub;
  const view = new HistoryView(client, TOPIC, {});
  const leave = view.listen(() => {});
  const loading = view.loadOlder();
  leave();
  gate.resolve();
  await loading;
  assert.deepEqual([view.read().messages, view.read().hasOlder], [[], true]);
});

test('messages of other topics are not shown', () => {
  const view = new HistoryView(clientOf(3).client, TOPIC, {});
  view.keep([{ ...message(7), topic: 'demo.other' }, message(3)]);
  assert.deepEqual(dataOf(view.read().messages), [3]);
});

test('pages of wrong sizes are refused', () => {
  const { client } = clientOf(3);
  for (const page of [0, 1.5, 10_001, '5']) {
    assert.throws(
      () => new HistoryView(client, TOPIC, { page } as never),
      (error) => error instanceof InvalidOption && error.field === 'page',
    );
  }
});

test('an unknown option of a view is named', () => {
  const options = { page: 20, pages: 20 };
  assert.throws(() => historyStore(clientOf(3).client, TOPIC, undefined, options), {
    field: 'pages',
    remedy: 'Write `page`.',
  });
});

test('useHistory of Vue shows what arrives and what it loads, and follows the topic', async () => {
  const { client, asked } = clientOf(5);
  const topic = shallowRef<string | null>(null);
  const live = shallowRef<Message[]>([]);
  const scope = effectScope();
  const used = scope.run(() => useHistory(client, topic, live, { page: 2 }));
  assert.ok(used);
  assert.equal(used.state.value.hasOlder, false);
  await used.loadOlder();
  assert.equal(asked.length, 0);
  topic.value = TOPIC;
  live.value = range(4, 5);
  await nextTick();
  assert.deepEqual(dataOf(used.state.value.messages), [4, 5]);
  await used.loadOlder();
  live.value = range(5, 6);
  await nextTick();
  assert.deepEqual(dataOf(used.state.value.messages), [2, 3, 4, 5, 6]);
  topic.value = 'demo.other';
  live.value = [];
  await nextTick();
  assert.deepEqual(used.state.value.messages, []);
  scope.stop();
});

test('useHistory of Vue shows the messages of a new topic that have already arrived', async () => {
  const { client } = clientOf(5);
  const topic = shallowRef(TOPIC);
  const other: Message = { ...message(9), topic: 'demo.other' };
  const live = [...range(4, 5), other];
  const scope = effectScope();
  const used = scope.run(() => useHistory(client, topic, live));
  assert.deepEqual(dataOf(used?.state.value.messages ?? []), [4, 5]);
  topic.value = 'demo.other';
  await nextTick();
  assert.deepEqual(dataOf(used?.state.value.messages ?? []), [9]);
  scope.stop();
});

interface Topics {
  [TOPIC]: { readonly text: string };
  'demo.count': number;
}

test('payloads have the types of the map of topics, or of the messages that arrive', () => {
  const client = clientOf(5).client as PubSub<Topics>;
  const loose = clientOf(5).client;
  const scope = effectScope();
  scope.run(() => {
    typed<UsedHistory<{ readonly text: string }>>()(useHistory(client, TOPIC));
    const topic = shallowRef<'demo.count' | null>(null);
    typed<UsedHistory<number>>()(useHistory(client, topic));
    typed<UsedHistory<number>>()(useHistory(client, () => topic.value));
    const live = shallowRef<readonly Message<number>[]>([]);
    typed<UsedHistory<number>>()(useHistory(loose, TOPIC as string, live));
  });
  scope.stop();
  typed<HistoryStore<{ readonly text: string }>>()(historyStore(client, TOPIC));
  const live = undefined as LiveMessages<number> | undefined;
  typed<HistoryStore<number>>()(historyStore(loose, TOPIC, live));
});

/** Accept a value of exactly this type. */
function typed<Wanted>() {
  return <Given>(_: Same<Given, Wanted> extends true ? Given : never): void => {};
}

type Same<One, Other> =
  (<T>() => T extends One ? 1 : 2) extends <T>() => T extends Other ? 1 : 2 ? true : false;

test('a store of Svelte loads again at once after it was left', async () => {
  const { client, wait } = clientOf(5);
  wait(new Promise(() => {}));
  const store = historyStore(client, TOPIC, undefined, { page: 2 });
  const leave = store.subscribe(() => {});
  void store.loadOlder();
  leave();
  wait(Promise.resolve());
  const states: HistoryState[] = [];
  store.subscribe((state) => void states.push(state));
  await store.loadOlder();
  assert.deepEqual(dataOf(states.at(-1)?.messages ?? []), [4, 5]);
});

test('a store of Svelte shows what arrives and what it loads', async () => {
  const { client } = clientOf(5);
  let arrive = (_: readonly Message[]): void => {};
  let left = 0;
  const live = {
    subscribe(run: (messages: readonly Message[]) => void) {
      arrive = run;
      run(range(5, 5));
      return () => {
        left += 1;
      };
    },
  };
  const store = historyStore(client, TOPIC, live, { page: 2 });
  const states: HistoryState[] = [];
  const leave = store.subscribe((state) => void states.push(state));
  assert.deepEqual(dataOf(states.at(-1)?.messages ?? []), [5]);
  await store.loadOlder();
  arrive(range(5, 7));
  assert.deepEqual(dataOf(states.at(-1)?.messages ?? []), [3, 4, 5, 6, 7]);
  leave();
  assert.equal(left, 1);
});

test('useHistory of React shows the messages of the first rendering at once', () => {
  const { client } = clientOf(5);
  const live = range(4, 5);
  function Room(): ReactNode {
    const { messages, hasOlder } = useReactHistory(TOPIC, live);
    return JSON.stringify([dataOf(messages), hasOlder]);
  }
  const html = renderToString(createElement(PubSubProvider, { client }, createElement(Room)));
  assert.equal(html, '[[4,5],false]');
});
