/**
 * What the tabs of one group exchange, as tabs with another version of the package send and read it.
 *
 * If it changes and they cannot read it, change the number in the name of the group (`groupOf`): then
 * each version has a connection of its own.
 */

/** How the name of the group begins. */
export const GROUP = 'hanzo-pubsub 2 ';

const PUBLISHED = { topic: 'demo.a', type: 't', data: { n: 1 }, id: 'one' };

/** Messages of a tab to the relay, with the id of the tab replaced. */
export const FROM_TAB: readonly { readonly tab: string; readonly frame: object }[] = [
  { tab: 'a', frame: { type: 'auth', token: 'x', version: 1 } },
  { tab: 'a', frame: { type: 'subscribe', topics: ['demo.a'], presence: true, ref: 's1' } },
  { tab: 'a', frame: { type: 'publish', message: PUBLISHED, ref: 'p1' } },
  { tab: 'a', frame: { type: 'unsubscribe', topics: ['demo.a'] } },
];

/** What the relay then sends to the server. */
export const TO_SERVER: readonly object[] = [
  { type: 'auth', token: 'x', version: 1 },
  { type: 'subscribe', topics: ['demo.a'], presence: true, ref: 'a:s1' },
  { type: 'publish', message: PUBLISHED, ref: 'a:p1' },
  { type: 'unsubscribe', topics: ['demo.a'] },
];

const MESSAGE = {
  id: 'one',
  topic: 'demo.a',
  type: 't',
  data: { n: 1 },
  sender: { type: 'user', id: 'u' },
  timestamp: 1_796_016_588_002,
  seq: 7,
};

/** Frames of the server. */
export const FROM_SERVER: readonly object[] = [
  { type: 'auth.ok', client_id: 'cl_1', user_id: 'u', features: ['ref'] },
  { type: 'subscribed', topics: ['demo.a'], ref: 'a:s1', timestamp: 3, positions: { 'demo.a': 6 } },
  { type: 'message', message: MESSAGE },
  { type: 'published', ref: 'a:p1', id: 'one', seq: 7, timestamp: 3 },
  { type: 'error', code: 'rate_limited', message: 'Slower.', ref: 'a:p2' },
  { type: 'auth.expiring', expires_in: 30 },
];

const relay = 'relay';

/** Messages of the relay to the tabs, with its id replaced. */
export const TO_TABS: readonly {
  readonly relay: string;
  readonly to?: string;
  readonly begun?: boolean;
  readonly frame?: object;
  readonly end?: object;
}[] = [
  { relay, begun: true },
  { relay, to: 'a' },
  { relay, frame: { type: 'auth.ok', client_id: 'cl_1', user_id: 'u', features: ['ref'] } },
  {
    relay,
    to: 'a',
    frame: {
      type: 'subscribed',
      topics: ['demo.a'],
      ref: 's1',
      timestamp: 3,
      positions: { 'demo.a': 6 },
    },
  },
  { relay, frame: { type: 'message', message: MESSAGE } },
  { relay, to: 'a', frame: { type: 'published', ref: 'p1', id: 'one', seq: 7, timestamp: 3 } },
  {
    relay,
    to: 'a',
    frame: { type: 'error', code: 'rate_limited', message: 'Slower.', ref: 'p2' },
  },
  { relay, frame: { type: 'auth.expiring', expires_in: 30 } },
  { relay, end: { code: 1001, reason: 'Another tab takes over.', again: true } },
];
