/** Scenarios: the frames of clients step by step. Both servers must answer alike. */

export type Frame = Readonly<Record<string, unknown>>;

/**
 * One step: a connection sends a frame, a connection ends, or an HTTP request. `$name` in a frame
 * is a token of that user. Positions in `after` count from 0, the first message of the topic.
 */
export type Step =
  | readonly [who: string, does: 'sends', frame: Frame | string]
  | readonly [who: string, does: 'ends', code: number]
  | readonly [
      user: string,
      does: 'asks' | 'streams',
      method: string,
      path: string,
      body?: Frame | undefined,
    ];

const auth = (user: string, more: Frame = {}): Frame => ({
  type: 'auth',
  token: `$${user}`,
  ref: 'a',
  ...more,
});
const publish = (topic: string, data: unknown, more: Frame = {}): Frame => ({
  type: 'publish',
  message: { topic, type: 'text', data, ...more },
  ref: `p${String(data)}`,
});
const subscribe = (topics: readonly string[], more: Frame = {}): Frame => ({
  type: 'subscribe',
  topics,
  ref: 's',
  ...more,
});

/** A topic with eight messages, of which five are retained. `writer` stays connected. */
const filled = (topic: string): Step[] => [
  ['writer', 'sends', auth('writer')],
  ...Array.from(
    { length: 8 },
    (_, n): Step => ['writer', 'sends', publish(topic, n, { id: `m${n}` })],
  ),
];

export const SCENARIOS: Readonly<Record<string, readonly Step[]>> = {
  '`auth.ok` has limits and features': [
    ['alice', 'sends', auth('alice', { version: 1, client: { name: 'test' } })],
  ],
  'an unknown token is rejected, and the connection is closed': [
    ['alice', 'sends', { type: 'auth', token: 'nonsense', ref: 'a' }],
  ],
  'before authentication, no request is performed': [
    ['alice', 'sends', subscribe(['demo.early'])],
    ['alice', 'sends', { type: 'nothing known', ref: 'x' }],
  ],
  'another token of the same user is accepted, one of another user is not': [
    ['alice', 'sends', auth('alice')],
    ['alice', 'sends', auth('alice', { ref: 'b' })],
    ['alice', 'sends', auth('bob', { ref: 'c' })],
    ['alice', 'sends', { type: 'auth', token: 'nonsense', ref: 'd' }],
    ['alice', 'sends', publish('demo.renewed', 1)],
  ],
  'a message reaches topics and patterns, each connection once': [
    ['alice', 'sends', auth('alice')],
    ['bob', 'sends', auth('bob')],
    ['alice', 'sends', subscribe(['demo.reach.a', 'demo.*.a', 'demo.**'], { presence: false })],
    ['bob', 'sends', subscribe(['demo.reach.*'], { presence: false })],
    ['bob', 'sends', publish('demo.reach.a', 1, { id: 'one', meta: { trace: 'x' } })],
    ['bob', 'sends', publish('demo.reach', 2, { id: 'two' })],
    ['bob', 'sends', publish('demo.reach.a.b', 3, { id: 'three' })],
    ['alice', 'sends', { type: 'unsubscribe', topics: ['demo.**', 'demo.none'], ref: 'u' }],
    ['bob', 'sends', publish('demo.reach', 4, { id: 'four' })],
  ],
  'a flat publish of HIP-56 is accepted, and answered if it has a ref': [
    ['alice', 'sends', auth('alice')],
    ['alice', 'sends', subscribe(['demo.flat'], { presence: false })],
    ['alice', 'sends', { type: 'publish', topic: 'demo.flat', data: { a: 1 }, message_type: 'x' }],
    ['alice', 'sends', { type: 'publish', topic: 'demo.flat', data: [null], ref: 'r', id: 'i' }],
  ],
  'a batch has one result per item': [
    ['alice', 'sends', auth('alice')],
    [
      'alice',
      'sends',
      {
        type: 'publish',
        ref: 'b',
        messages: [
          { topic: 'demo.batch', data: 1, id: 'one' },
          { topic: 'not..valid', data: 2 },
          { topic: 'demo.batch', data: 3, id: 'three', ttl: 0 },
          { topic: 'user.bob.inbox', data: 4 },
          { topic: 'demo.batch', data: 1, id: 'one' },
        ],
      },
    ],
  ],
  'an id is published once, and only for one message': [
    ['alice', 'sends', auth('alice')],
    ['bob', 'sends', auth('bob')],
    ['alice', 'sends', publish('demo.once', 1, { id: 'one' })],
    ['alice', 'sends', publish('demo.once', 1, { id: 'one' })],
    ['alice', 'sends', publish('demo.once', 2, { id: 'one' })],
    ['bob', 'sends', publish('demo.once', 1, { id: 'one' })],
    ['alice', 'sends', publish('demo.once', 9, { id: 'gone', ttl: 0 })],
    ['alice', 'sends', publish('demo.once', 9, { id: 'gone', ttl: 0 })],
  ],
  'the newest messages are replayed': [
    ...filled('demo.newest'),
    ['alice', 'sends', auth('alice')],
    ['alice', 'sends', subscribe(['demo.newest'], { history: 2 })],
    ['alice', 'sends', subscribe(['demo.newest'], { history: 50 })],
    ['alice', 'sends', subscribe(['demo.newest'])],
    ['alice', 'sends', subscribe(['demo.nothing'], { history: 5 })],
  ],
  'messages after a position are replayed, and missing ones are reported': [
    ...filled('demo.position'),
    ['alice', 'sends', auth('alice')],
    ['alice', 'sends', subscribe(['demo.position'], { after: { 'demo.position': 5 } })],
    ['alice', 'sends', subscribe(['demo.position'], { after: { 'demo.position': 7 } })],
    ['alice', 'sends', subscribe(['demo.position'], { after: { 'demo.position': 1 } })],
    ['alice', 'sends', subscribe(['demo.position'], { after: { 'demo.position': -500 } })],
    ['alice', 'sends', subscribe(['demo.position'], { after: { 'demo.position': 50 } })],
    ['alice', 'sends', subscribe(['demo.*'], { after: { 'demo.position': 3 }, history: 2 })],
    ['alice', 'sends', subscribe(['demo.position'], { since: 1 })],
  ],
  'denied topics are listed beside granted ones': [
    ['alice', 'sends', auth('alice')],
    ['alice', 'sends', subscribe(['user.bob.inbox', 'demo.ok', 'not..valid', 'user.alice.inbox'])],
    ['alice', 'sends', { type: 'subscribe', topics: ['user.bob.inbox'] }],
    ['alice', 'sends', publish('user.bob.inbox', 1)],
    ['alice', 'sends', publish('not..valid', 2)],
    ['alice', 'sends', publish('demo.*', 3)],
  ],
  'a pattern delivers only topics that may be read': [
    ['alice', 'sends', auth('alice')],
    ['worker', 'sends', auth('worker')],
    ['alice', 'sends', subscribe(['**'], { presence: false })],
    ['worker', 'sends', publish('user.bob.inbox', 1, { id: 'one' })],
    ['worker', 'sends', publish('user.alice.inbox', 2, { id: 'two' })],
  ],
  'an invalid frame is rejected alone': [
    ['alice', 'sends', auth('alice')],
    ['alice', 'sends', 'no JSON'],
    ['alice', 'sends', '[1]'],
    ['alice', 'sends', { topics: ['a'], ref: 'x' }],
    ['alice', 'sends', { type: 'constructor', ref: 'x' }],
    ['alice', 'sends', { type: 'subscribe', ref: 'x' }],
    ['alice', 'sends', { type: 'subscribe', topics: 'demo.a', ref: 'x' }],
    ['alice', 'sends', subscribe(['demo.a'], { after: { 'demo.a': 'x' } })],
    ['alice', 'sends', { type: 'publish', message: { topic: 'demo.a' }, ref: 'x' }],
    ['alice', 'sends', { type: 'publish', message: 5, ref: 'x' }],
    ['alice', 'sends', publish('demo.a', 1, { ttl: -1 })],
    ['alice', 'sends', { type: 'publish', messages: [], ref: 'x' }],
    ['alice', 'sends', { type: 'presence.update', data: 1, ref: 'x' }],
  ],
  'a payload over the limit is refused': [
    ['alice', 'sends', auth('alice')],
    ['alice', 'sends', publish('demo.large', 'x'.repeat(2_000))],
    ['alice', 'sends', publish('demo.large', 'é'.repeat(600))],
  ],
  'a publish above the rate is rejected with a time to wait': [
    ['alice', 'sends', auth('alice')],
    [
      'alice',
      'sends',
      {
        type: 'publish',
        ref: 'b',
        messages: Array.from({ length: 65 }, (_, data) => ({
          topic: 'demo.rate',
          data,
          id: `m${data}`,
        })),
      },
    ],
  ],
  'members of a topic are informed of each other': [
    ['alice', 'sends', auth('alice')],
    ['bob', 'sends', auth('bob')],
    ['carol', 'sends', auth('carol')],
    ['alice', 'sends', subscribe(['demo.room'])],
    ['bob', 'sends', subscribe(['demo.room'])],
    ['carol', 'sends', subscribe(['demo.*'])],
    ['bob', 'sends', { type: 'presence.update', data: { status: 'typing', x: 1 }, ref: 'u' }],
    [
      'bob',
      'sends',
      {
        type: 'presence.update',
        topic: 'demo.room',
        data: { status: null, name: 'Bobby', metadata: { y: 2 }, x: null },
        ref: 'v',
      },
    ],
    ['bob', 'sends', { type: 'presence.update', topic: 'demo.other', data: {}, ref: 'w' }],
    ['bob', 'sends', { type: 'presence.update', data: { status: 5 }, ref: 'w' }],
    ['bob', 'sends', publish('demo.room', { status: 'idle' }, { type: 'presence.update' })],
    ['bob', 'sends', publish('demo.room', {}, { type: 'presence.join' })],
    ['bob', 'ends', 1000],
    ['alice', 'sends', { type: 'unsubscribe', topics: ['demo.room'], ref: 'u' }],
  ],
  'the metadata of a client is limited on all topics together': [
    ['alice', 'sends', auth('alice')],
    ['alice', 'sends', subscribe(Array.from({ length: 70 }, (_, n) => `demo.full.${n}`))],
    ['alice', 'sends', { type: 'presence.update', data: { k: 'x'.repeat(15_000) }, ref: 'u' }],
    ['alice', 'sends', { type: 'presence.update', data: { k: 'x'.repeat(14_000) }, ref: 'v' }],
  ],
  'a subscription without presence receives none': [
    ['alice', 'sends', auth('alice')],
    ['bob', 'sends', auth('bob')],
    ['alice', 'sends', subscribe(['demo.quiet'], { presence: false })],
    ['bob', 'sends', subscribe(['demo.quiet'])],
    ['alice', 'sends', subscribe(['demo.quiet'])],
    ['bob', 'ends', 1000],
  ],
  'the HTTP API publishes, and returns history, presence and topics': [
    ['alice', 'asks', 'GET', '/v1/session'],
    ['alice', 'asks', 'POST', '/v1/topics/demo.http/messages', { data: 1, id: 'one', type: 't' }],
    ['alice', 'asks', 'POST', '/v1/topics/demo.http/messages', { data: 1, id: 'one', type: 't' }],
    ['alice', 'asks', 'POST', '/v1/topics/demo.http/messages', { data: 2, id: 'one', type: 't' }],
    ['alice', 'asks', 'POST', '/v1/topics/user.bob.inbox/messages', { data: 1 }],
    ['alice', 'asks', 'POST', '/v1/topics/a..b/messages', { data: 1 }],
    ['alice', 'asks', 'POST', '/v1/topics/demo.http/messages', { type: 't' }],
    [
      'alice',
      'asks',
      'POST',
      '/v1/messages:batch',
      {
        messages: [
          { topic: 'demo.http', data: 2, id: 'two' },
          { topic: 'user.bob.inbox', data: 3 },
        ],
      },
    ],
    ['alice', 'asks', 'POST', '/v1/messages:batch', { messages: [] }],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?limit=1'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?before=two'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?before_seq=1'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?before=two&before_seq=9000000000000000'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?before_seq=x'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?after=1&before_seq=0'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?limit=0'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?since=x'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/history?after=1&before=two'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.nobody/history'],
    ['alice', 'asks', 'GET', '/v1/topics/user.bob.inbox/history'],
    ['alice', 'asks', 'GET', '/v1/topics/demo.http/presence'],
    ['alice', 'asks', 'GET', '/v1/topics'],
    ['root', 'asks', 'GET', '/v1/topics?prefix=demo.http'],
    ['root', 'asks', 'GET', '/v1/topics?prefix=none'],
    ['alice', 'asks', 'GET', '/v1/elsewhere'],
    ['nobody', 'asks', 'GET', '/v1/session'],
  ],
  'an event stream delivers the same as a socket': [
    ...filled('demo.stream'),
    [
      'alice',
      'streams',
      'POST',
      '/v1/subscribe',
      {
        subscriptions: [
          { topics: ['demo.stream'], after: { 'demo.stream': 5 }, ref: 's' },
          { topics: ['demo.room.*', 'user.bob.inbox'], ref: 't' },
        ],
        presence: true,
      },
    ],
    ['writer', 'sends', publish('demo.stream', 9, { id: 'nine' })],
    ['writer', 'sends', publish('demo.stream', 10, { id: 'ten', ttl: 0 })],
    ['writer', 'sends', subscribe(['demo.room.1'])],
  ],
  'an event stream of HIP-56 names its topics in the query': [
    ...filled('demo.query'),
    ['alice', 'streams', 'GET', '/v1/subscribe?topics=demo.query,demo.other&since=1'],
    ['writer', 'sends', publish('demo.other', 9, { id: 'nine' })],
  ],
  'an event stream without an allowed topic is rejected': [
    ['alice', 'streams', 'GET', '/v1/subscribe?topics=user.bob.inbox'],
    ['alice', 'streams', 'GET', '/v1/subscribe?topics=a..b'],
    ['alice', 'streams', 'GET', '/v1/subscribe'],
    ['alice', 'streams', 'POST', '/v1/subscribe', { subscriptions: [] }],
    ['nobody', 'streams', 'GET', '/v1/subscribe?topics=demo.a'],
  ],
};
