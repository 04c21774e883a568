/** A subscription keeps nothing of an answer that it has delivered. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Session } from '../../../js/src/session/session.js';
import { virtualClient } from './virtual.js';

test('a subscription releases the answer of the server after its last part', async () => {
  const { ps, peer } = virtualClient();
  const { message } = peer.message('a.kept', 1) as { readonly message?: object };
  const answer = peer.answer.bind(peer);
  peer.answer = (frame) => {
    if (frame['type'] !== 'subscribe') return answer(frame);
    const part = { type: 'subscribed', ref: frame['ref'], topics: ['a.kept'], timestamp: 1 };
    return [
      { ...part, history: [message], more: true },
      { ...part, positions: { 'a.kept': 1 } },
    ];
  };
  const sub = await ps.subscribe('a.kept', { history: 10 });
  assert.equal(sub.stats.received, 1);
  const { _driver: driver } = ps as unknown as { readonly _driver: { readonly session: Session } };
  const [state] = driver.session.operations?.subscriptions.all.values() ?? [];
  assert.equal(state?.phase, 'live');
  assert.deepEqual(state._replay._answer, {});
  await ps.close();
});
