import assert from 'node:assert/strict';
import { test } from 'node:test';

import { sessionOptions } from '../../js/src/settings/session.js';
import { RecordedSession } from './traces/events.js';

const COUNT = 1_000;

test('a publish that waits for the rate does not search the queue', () => {
  const recorded = new RecordedSession(sessionOptions({ client: { name: 'test' } }), () => 0);
  recorded.handle({ kind: 'connect' });
  recorded.handle({ kind: 'token', fetch: 1, value: 't' });
  recorded.handle({ kind: 'opened', incremental: true });
  const limits = { publish_rate: 10 };
  const features = ['ref', 'ack', 'idempotency'];
  const frame = { type: 'auth.ok', client_id: 'c', version: 1, features, limits } as const;
  recorded.handle({ kind: 'received', at: 1, frame });
  const { publishes } = recorded.session.operations;
  let reads = 0;
  for (let ref = 1; ref <= COUNT; ref += 1) {
    publishes.publish({
      ref,
      messages: [{ topic: 'a', data: ref, id: `m${ref}` }],
      size: 100,
      policy: 'block',
      get background(): boolean {
        reads += 1;
        return false;
      },
    });
  }
  assert.equal(publishes.size, COUNT);
  assert.ok(reads < COUNT);
});

test('a publish with a key does not search the queue for it', () => {
  const client = { name: 'test' };
  const options = sessionOptions({ client, sendQueueMessages: COUNT });
  const { publishes } = new RecordedSession(options, () => 0).session.operations;
  let reads = 0;
  for (let ref = 1; ref <= 2 * COUNT; ref += 1) {
    publishes.publish({
      ref,
      messages: [{ topic: 'a', data: ref, id: `m${ref}` }],
      size: 100,
      policy: 'latest',
      get key(): string {
        reads += 1;
        return `k${ref % COUNT}`;
      },
    });
  }
  assert.equal(publishes.size, COUNT);
  assert.ok(reads < 10 * COUNT, `${reads} reads`);
});
