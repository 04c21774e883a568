/** A page that reads numbers from a topic, and continues from its position after a reload. */

import { type Gap, PubSub } from '@hanzoai/pubsub';

import { frame } from './look.js';

/** Values for the test. */
export interface Reader {
  readonly ps: PubSub;
  /** The received numbers in order, including those of the page before a reload. */
  readonly got: number[];
  readonly gaps: Gap[];
  /** Every state, with its reason. */
  readonly states: [state: string, reason: string][];
  /** The reasons of the token requests. */
  readonly asked: string[];
  /** Whether the server has accepted the subscription. */
  ready: boolean;
}

declare global {
  var reader: Reader;
}

const kept = JSON.parse(sessionStorage.getItem('kept') ?? '{"got":[],"after":{}}') as {
  got: number[];
  after: Record<string, number>;
};
const view = frame(given.title ?? given.topic, ['received', 'reconnects', 'gaps', 'tokens']);
const asked: string[] = [];
const states: [string, string][] = [];
const gaps: Gap[] = [];
const { got } = kept;
const ps = new PubSub({
  ...given.options,
  ...(globalThis.mint && {
    getToken: async ({ reason }) => {
      asked.push(reason);
      view.count('tokens', asked.length);
      view.tell(`token: ${reason}`);
      return (await globalThis.mint?.(reason)) ?? '';
    },
  }),
});
globalThis.reader = { ps, got, gaps, states, asked, ready: false };

let connections = 0;
ps.on('state', ({ to, reason }) => {
  states.push([to, reason]);
  view.state(to);
  view.tell(reason ? `${to}: ${reason}` : to);
  if (to === 'connected') view.count('reconnects', connections++);
});
ps.on('gap', (gap) => {
  gaps.push(gap);
  view.count('gaps', gaps.length);
});
ps.on('error', (error) => view.tell(`error: ${error.message}`));

const sub = await ps.subscribe(given.topic, {
  after: kept.after,
  onMessage: ({ data }) => {
    got.push(data.index);
    view.count('received', got.length);
  },
});
// Save the processed messages and the position together when the page is hidden.
addEventListener('pagehide', () => {
  sessionStorage.setItem('kept', JSON.stringify({ got, after: sub.positions }));
});
reader.ready = true;
