import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { HistoryOptions, Message, PubSub } from '../../../js/src/index.js';
import { History } from '../../../server-mock/console/src/history.js';
import { Feed, OLDER_MAX } from '../../../server-mock/console/src/messages/feed.js';
import { deferred } from '../runtime/server.js';
import { turns } from '../runtime/virtual.js';

const PAGE = 50;

/** Frames that a test runs itself. */
const frames: (() => void)[] = [];
Object.assign(globalThis, {
  requestAnimationFrame: (run: () => void) => frames.push(run),
  cancelAnimationFrame: () => undefined,
});
function frame(): void {
  for (const run of frames.splice(0)) run();
}

function message(seq: number, more: Partial<Message> = {}): Message {
  return { id: `m${seq % 10}`, topic: 'a', type: 't', timestamp: seq, data: {}, seq, ...more };
}

/** A console that shows one topic, and a server that retains the messages from 1. */
function console_(from: number, to: number) {
  const feed = new Feed();
  feed.narrow('a');
  const asked: unknown[] = [];
  const gate = { opened: Promise.resolve() };
  async function* pages(_: string, { before, limit = 0 }: HistoryOptions) {
    asked.push((before as Message | undefined)?.seq);
    const end = (before as Message | undefined)?.seq ?? 4;
    await gate.opened;
    for (let seq = Math.max(1, end - limit); seq < end; seq += 1) yield message(seq);
  }
  const history = new History({ history: pages } as unknown as PubSub, feed, assert.ifError);
  const arrive = (first: number, last: number) => {
    for (let seq = first; seq <= last; seq += 1) feed.message(message(seq));
    frame();
  };
  arrive(from, to);
  const shown = () => feed.scope.map((entry) => entry.kind === 'message' && entry.message.seq);
  return { feed, history, asked, gate, arrive, shown };
}

const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, at) => from + at);

test('older messages are those before the position of the oldest, although ids are shared', async () => {
  const { history, shown, asked } = console_(71, 75);
  await history.older();
  assert.deepEqual([history.state.peek(), shown()], ['more', range(21, 75)]);
  await history.older();
  assert.deepEqual([history.state.peek(), shown()], ['beginning', range(1, 75)]);
  assert.deepEqual(asked, [71, 21]);
});

test('older messages are found above one that history does not retain', async () => {
  const { feed, history, asked } = console_(1, 0);
  const { seq: _, ...ephemeral } = message(5, { ttl: 0 });
  feed.message(ephemeral);
  feed.message(message(6));
  frame();
  await history.older();
  assert.deepEqual(asked, [6]);
});

test('a page that arrives after the list was left or cleared is not added', async () => {
  for (const change of [
    (feed: Feed) => feed.clear(),
    (feed: Feed) => feed.narrow('b'),
    (feed: Feed) => {
      feed.narrow('b');
      feed.narrow('a');
    },
  ]) {
    const { feed, history, gate, shown } = console_(171, 175);
    await history.older();
    const opened = deferred<undefined>();
    gate.opened = opened.promise as Promise<never>;
    const older = history.older();
    change(feed);
    const before = shown();
    opened.resolve(undefined);
    await older;
    assert.deepEqual([history.state.peek(), shown()], ['more', before]);
  }
});

test('the end of a load of another topic does not disturb the load of this one', async () => {
  const { feed, history, gate } = console_(171, 175);
  const gates = [deferred<undefined>(), deferred<undefined>()] as const;
  gate.opened = gates[0].promise as Promise<never>;
  const first = history.older();
  feed.narrow('b');
  await turns(1);
  gate.opened = gates[1].promise as Promise<never>;
  const second = history.older();
  gates[0].resolve(undefined);
  await first;
  assert.deepEqual([history.state.peek(), feed.loading], ['loading', true]);
  gates[1].resolve(undefined);
  await second;
  assert.deepEqual([history.state.peek(), feed.loading], ['beginning', false]);
});

test('the newest page is added although a first message arrives while it loads', async () => {
  const { history, arrive, gate, shown } = console_(1, 0);
  const opened = deferred<undefined>();
  gate.opened = opened.promise as Promise<never>;
  const older = history.older();
  arrive(9, 9);
  opened.resolve(undefined);
  await older;
  assert.deepEqual([history.state.peek(), shown()], ['beginning', [1, 2, 3, 9]]);
});

test('there is no hole between a page and the newest messages that arrive while it loads', async () => {
  const { history, arrive, gate, shown } = console_(101, 5_100);
  const opened = deferred<undefined>();
  gate.opened = opened.promise as Promise<never>;
  const older = history.older();
  arrive(5_101, 5_200);
  opened.resolve(undefined);
  await older;
  assert.deepEqual([history.state.peek(), shown()], ['more', range(51, 5_200)]);
});

test('what is beyond the limit of older messages is the oldest', async () => {
  const { history, arrive, shown } = console_(4_001, 9_000);
  await history.older();
  arrive(9_001, 9_010); // ten more stay above the newest, so the last page is not a whole one
  for (let n = 0; n < 50 && history.state.peek() === 'more'; n += 1) await history.older();
  assert.equal(history.state.peek(), 'full');
  assert.deepEqual(shown(), range(9_010 - 5_000 - OLDER_MAX + 1, 9_010));
  assert.ok(OLDER_MAX % PAGE === 0);
});
