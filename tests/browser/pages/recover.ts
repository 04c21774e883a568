/** A page that only sets `recover`: the client restores the positions of the page before. */

import { type Gap, PubSub } from '@hanzoai/pubsub';

/** Values for the test. */
export interface Recovered {
  readonly ps: PubSub;
  /** The numbers of all pages of this tab, in the order they arrived. */
  readonly got: number[];
  readonly gaps: Gap[];
  readonly states: string[];
  ready: boolean;
}

declare global {
  var recovered: Recovered;
}

const got = JSON.parse(sessionStorage.getItem('got') ?? '[]') as number[];
const ps = new PubSub({ ...given.options, recover: true });
globalThis.recovered = { ps, got, gaps: [], states: [], ready: false };
ps.on('gap', (gap) => recovered.gaps.push(gap));
ps.on('state', ({ to }) => recovered.states.push(to));
addEventListener('pagehide', () => sessionStorage.setItem('got', JSON.stringify(got)));
await ps.subscribe(given.topic, { onMessage: ({ data }) => got.push(data.index) });
recovered.ready = true;
