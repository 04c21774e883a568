/** Listeners, iterations over state changes, and the log of errors without a listener. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PubSubError } from '../../../js/src/errors.js';
import { Listeners } from '../../../js/src/runtime/listeners.js';

test('a restart of the server is logged as a warning, other failures as errors', () => {
  const reported: string[] = [];
  const note = (level: string) => (message: string) =>
    void reported.push(`${level} ${message.replace(/ See https:.*/, '')}`);
  const listeners = new Listeners({ warn: note('warn'), error: note('error') });
  const failed = new PubSubError('connection_failed', 'Nobody answers.', {
    remedy: 'Check the network.',
  });
  listeners.report(new PubSubError('going_away', 'The server is shutting down.'));
  listeners.report(failed);
  listeners.report(new TypeError('a bug'));
  assert.deepEqual(reported, [
    'warn going_away: The server is shutting down. No action is needed: the client reconnects.',
    'error connection_failed: Nobody answers. Check the network.',
    'error A handler threw',
  ]);
});

test('a listener that was removed, and an iteration that has ended, are forgotten at once', async () => {
  const listeners = new Listeners({ warn: () => {}, error: () => {} });
  const { _readers: readers } = listeners as unknown as { _readers: ReadonlyMap<unknown, unknown> };
  const remove = listeners.on('gap', () => {});
  const states = listeners.open('state');
  assert.equal(readers.size, 2);
  remove();
  await states.return();
  assert.equal(readers.size, 0);
});
