/** The requests that open an event stream, and whose subscription each answer belongs to. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PermissionDenied } from '../../js/src/index.js';
import { StreamSubscriptions } from '../../js/src/transports/stream_subscriptions.js';

const OPENED = 1_000_000;
const OVERLAP = 500;

const subscriptions = (): StreamSubscriptions => new StreamSubscriptions(() => OPENED, OVERLAP);

const subscribe = (ref: string | undefined, topics: string[], more: object = {}) =>
  ({ type: 'subscribe', topics, ref, ...more }) as never;

const envelope = (topic: string, timestamp: number, seq?: number) => ({
  topic,
  id: `msg_${topic}_${timestamp}`,
  type: 'message',
  data: timestamp,
  timestamp,
  ...(seq === undefined ? {} : { seq }),
});

const message = (...given: Parameters<typeof envelope>) =>
  ({ type: 'message', message: envelope(...given) }) as never;

/** A set for a peer that implements only HIP-56. */
function plain(...frames: never[]): StreamSubscriptions {
  const set = subscriptions();
  set.plain = true;
  set.replace(frames);
  return set;
}

/** The query of a GET. */
function query(set: StreamSubscriptions): Record<string, string> {
  const { method, path, body } = set.request(undefined);
  assert.deepEqual([method, body], ['GET', undefined]);
  return Object.fromEntries(new URL(path, 'http://localhost').searchParams);
}

test('a plain peer gets one GET with each topic once, and the earliest start', () => {
  const both = plain(
    subscribe('r1', ['a.1', 'a.2'], { since: 900_000 }),
    subscribe('r2', ['a.2', 'b.*'], { since: 800_000 }),
  );
  assert.deepEqual(query(both), { topics: 'a.1,a.2,b.*', since: '800000' });
  assert.deepEqual(query(plain(subscribe('r1', ['a.1']))), { topics: 'a.1' });
});

test('a plain peer repeats the messages of the overlap when a stream opens again', () => {
  const set = plain(subscribe('r1', ['a.1']));
  set.request(undefined);
  set.translate({ type: 'subscribed', topics: ['a.1'] } as never, set.generation);
  assert.equal(query(set)['since'], String(OPENED - OVERLAP));
  set.translate(message('a.1', OPENED + 2_000), set.generation);
  assert.equal(query(set)['since'], String(OPENED + 2_000 - OVERLAP));
});

test('the one answer of a plain peer is split by the topics and starts of its subscriptions', () => {
  const set = plain(
    subscribe('r1', ['a.1', 'secret.1'], { since: 100 }),
    subscribe('r2', ['a.*'], { since: 300 }),
    subscribe('r3', ['a.1']),
  );
  const answer = {
    type: 'subscribed',
    topics: ['a.1', 'a.*'],
    history: [envelope('a.1', 200), envelope('a.1', 300), envelope('a.2', 400), envelope('a.1', 0)],
  };
  const reported = set.translate(answer as never, set.generation);
  const shown = reported.map((frame) => {
    assert.ok(frame.type === 'subscribed');
    return [
      frame.ref,
      frame.topics,
      frame.history?.map(({ topic, timestamp }) => [topic, timestamp]),
    ];
  });
  assert.deepEqual(shown, [
    [
      'r1',
      ['a.1'],
      [
        ['a.1', 200],
        ['a.1', 300],
        ['a.1', 0],
      ],
    ],
    [
      'r2',
      ['a.*'],
      [
        ['a.2', 400],
        ['a.1', 0],
      ],
    ],
    ['r3', ['a.1'], []],
  ]);
});

test('a plain peer that opens the stream again replays messages, not answers', () => {
  const set = plain(subscribe('r1', ['a.1']));
  const answer = { type: 'subscribed', topics: ['a.1'] };
  set.translate(answer as never, set.generation);
  const again = { ...answer, history: [envelope('a.1', 200)] };
  assert.deepEqual(set.translate(again as never, set.generation), [message('a.1', 200)]);
});

test('the answer to an earlier set of a plain peer is left out', () => {
  const set = plain(subscribe('r1', ['a.1']));
  const before = set.generation;
  set.replace([subscribe('r2', ['b.1'])]);
  const answer = { type: 'subscribed', topics: ['a.1'] } as never;
  assert.deepEqual(set.translate(answer, before), []);
  assert.equal(set.translate(answer, set.generation).length, 1);
});

test('a subscription that is answered again receives new refusals as errors', () => {
  const set = subscriptions();
  set.replace([subscribe('r1', ['a.1', 'a.2'])]);
  const answer = { type: 'subscribed', topics: ['a.1', 'a.2'], ref: 'r1', timestamp: 5 };
  assert.deepEqual(set.translate(answer as never, set.generation), [answer]);
  const denied = [{ topic: 'a.2', code: 'forbidden', message: 'no longer' }];
  const again = { ...answer, topics: ['a.1'], history: [envelope('a.1', 9, 1)], denied };
  assert.deepEqual(set.translate(again as never, set.generation), [
    message('a.1', 9, 1),
    { type: 'error', code: 'forbidden', message: 'no longer', topic: 'a.2' },
  ]);
});

test('a rejected stream ends its running subscriptions with an error, and denies the new ones', () => {
  const set = subscriptions();
  set.replace([subscribe('r1', ['a.1']), subscribe('r2', ['b.1', 'b.2'])]);
  set.translate({ type: 'subscribed', topics: ['a.1'], ref: 'r1', timestamp: 5 } as never, 1);
  const error = new PermissionDenied('You may not read it (topic b.1)', {
    code: 'forbidden',
    topic: 'b.1',
  });
  const reported = set.denied(error).map((frame) => {
    if (frame.type === 'error') return [frame.code, frame.topic, frame.message];
    assert.ok(frame.type === 'subscribed');
    return [frame.ref, frame.topics, frame.denied?.map(({ topic, code }) => [topic, code])];
  });
  const text = error.message.replace(' (topic b.1)', '');
  assert.deepEqual(reported, [
    ['forbidden', 'a.1', text],
    [
      'r2',
      [],
      [
        ['b.1', 'forbidden'],
        ['b.2', 'forbidden'],
      ],
    ],
  ]);
  assert.ok(set.empty);
});

test('a set that replaces one without refs answers the subscriptions that it overtakes', () => {
  const set = subscriptions();
  set.replace([subscribe(undefined, ['a.1']), subscribe('r2', ['b.1'])]);
  assert.deepEqual(set.replace([subscribe('r3', ['c.1'])]), [
    { type: 'subscribed', topics: ['a.1'] },
  ]);
});

test('the next stream continues the ten thousand topics that were seen last', () => {
  const set = subscriptions();
  set.replace([subscribe('r1', ['a.*'])]);
  set.translate({ type: 'subscribed', topics: ['a.*'], ref: 'r1', timestamp: 5 } as never, 1);
  for (let n = 0; n <= 10_000; n += 1) set.translate(message(`a.${n}`, 10, 7), 1);
  // A lower position of a topic does not replace the higher one.
  set.translate(message('a.10000', 10, 3), 1);
  const [one] = JSON.parse(set.request(undefined).body ?? '').subscriptions;
  assert.equal(Object.keys(one.after).length, 10_000);
  assert.deepEqual([one.after['a.0'], one.after['a.1'], one.after['a.10000']], [undefined, 7, 7]);
});
