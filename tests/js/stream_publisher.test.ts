/** What is published beside an event stream is answered frame by frame. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { ServerFrame } from '../../js/src/generated/wire.js';
import type { Rest } from '../../js/src/http/rest.js';
import { StreamPublisher } from '../../js/src/transports/stream_publisher.js';

test('presence without a topic is rejected after the call that sends it', async () => {
  const answers: ServerFrame[] = [];
  const publisher = new StreamPublisher(
    {} as Rest,
    { timeout: 1_000, signal: new AbortController().signal },
    (frame) => answers.push(frame),
    assert.fail,
  );
  publisher.put({ type: 'presence.update', data: { status: 'typing' }, ref: '5' });
  assert.equal(answers.length, 0);
  await Promise.resolve();
  assert.deepEqual(answers, [
    {
      type: 'error',
      code: 'unsupported',
      ref: '5',
      message: 'An event stream without a topic has no presence.',
      remedy: 'Name a topic, or connect by WebSocket.',
    },
  ]);
});
