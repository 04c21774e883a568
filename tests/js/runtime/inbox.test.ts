/** The bounded queue of one subscription. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Inbox } from '../../../js/src/runtime/inbox.js';
import type { Message } from '../../../js/src/values.js';

const message = (seq: number, size: number): Message => ({
  id: `m${seq}`,
  topic: 'a.b',
  type: 't',
  data: 'x'.repeat(size),
  timestamp: 1,
  seq,
});

test('a queue that dropped messages lets the program run until it has taken their gap', () => {
  const inbox = new Inbox(['a.b'], { messages: 100, bytes: 2_500, policy: 'gap' });
  assert.equal(inbox.put(message(1, 1_000), false), false);
  assert.equal(inbox.put(message(2, 1_000), false), true);
  assert.equal(inbox.put(message(3, 10), false), true);
  const first = inbox.take();
  assert.ok(first && 'gap' in first);
  assert.equal(first.gap.missed, 1);
  assert.equal(inbox.put(message(4, 10), false), false);
});
