import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import { sessionOptions } from '../../js/src/settings/session.js';
import { RecordedSession } from './traces/events.js';

const BATCHES = 20_000;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** A session with a server that acknowledges publishes, but takes no batch. */
function connected(): RecordedSession {
  const session = new RecordedSession(sessionOptions({ client: { name: 'test' } }), () => 0.5);
  const frame = {
    type: 'auth.ok',
    client_id: 'c',
    version: 1,
    features: ['ref', 'ack', 'seq', 'idempotency'],
  } as const;
  session.handle({ kind: 'connect' });
  session.handle({ kind: 'token', fetch: 1, value: 't' });
  session.handle({ kind: 'opened', incremental: true });
  session.handle({ kind: 'received', frame, at: 1 });
  return session;
}

for (const [how, settle] of [
  ['answered', true],
  ['expired', false],
] as const) {
  test(`batches that are ${how} leave nothing behind at a server without batches`, () => {
    const session = connected();
    const messages = [0, 1].map((n) => ({ topic: 'a', type: 't', data: n, id: `m${n}` }));
    const publish = (ref: number): void => {
      session.handle({ kind: 'publish', ref, messages, size: 10, batch: true });
      if (!settle) session.handle({ kind: 'expire', ref });
      for (const slot of settle ? [0, 1] : []) {
        const frame = { type: 'published', ref: `p${ref}.${slot}` } as const;
        session.handle({ kind: 'received', frame, at: 1 });
      }
    };
    publish(1);
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let ref = 2; ref < BATCHES; ref += 1) publish(ref);
    collect();
    const grown = process.memoryUsage().heapUsed - before;
    assert.equal(session.session.operations.publishes.size, 0);
    assert.ok(grown < 100 * BATCHES, `${grown} bytes remain after ${BATCHES} batches`);
  });
}
