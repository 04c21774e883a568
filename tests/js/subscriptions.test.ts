import assert from 'node:assert/strict';
import { test } from 'node:test';

import { sessionOptions } from '../../js/src/settings/session.js';
import { RecordedSession } from './traces/events.js';

test('a subscription begins and ends without a look at the others', () => {
  const recorded = new RecordedSession(sessionOptions({ client: { name: 'test' } }), () => 0);
  recorded.handle({ kind: 'connect' });
  recorded.handle({ kind: 'token', fetch: 1, value: 't' });
  recorded.handle({ kind: 'opened', incremental: true });
  const frame = { type: 'auth.ok', client_id: 'c', version: 1, features: ['ref', 'seq'] } as const;
  recorded.handle({ kind: 'received', at: 1, frame });
  const { operations } = recorded.session;
  operations.subscribe({ sub: 1, topics: ['a'], presence: true });
  for (const other of operations.subscriptions.all.values()) {
    Object.defineProperty(other, 'patterns', { get: () => assert.fail('it read another one') });
  }
  operations.subscribe({ sub: 2, topics: ['c'], presence: true });
  const answer = { type: 'subscribed', topics: ['c'], ref: 's2', timestamp: 1 } as const;
  recorded.handle({ kind: 'received', at: 1, frame: answer });
  operations.unsubscribe(2);
  assert.deepEqual([...operations.subscriptions.routes.byPattern.keys()], ['a']);
});
