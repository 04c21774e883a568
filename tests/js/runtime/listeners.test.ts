/** Listeners, iterations over state changes, and the log of errors without a listener. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PubSubError } from '../../../js/src/errors.js';
import { Listeners } from '../../../js/src/runtime/handlers.js';
import { turns, virtualClient } from './virtual.js';

test('a restart of the server is logged as information, other failures as errors', () => {
  const reported: string[] = [];
  const note = (level: string) => (message: string) =>
    void reported.push(`${level} ${message.replace(/ See https:.*/, '')}`);
  const listeners = new Listeners({ info: note('info'), warn: note('warn'), error: note('error') });
  const failed = new PubSubError('connection_failed', 'Nobody answers.', {
    remedy: 'Check the network.',
  });
  listeners.report(new PubSubError('going_away', 'The server is shutting down.'));
  listeners.report(failed);
  listeners.report(new TypeError('a bug'));
  assert.deepEqual(reported, [
    'info going_away: The server is shutting down. No action is needed: the client reconnects.',
    'error connection_failed: Nobody answers. Check the network.',
    'error A handler threw',
  ]);
});

test('the logger of a client gets a restart of the server as information alone', async () => {
  const logged: string[] = [];
  const note = (level: string) => (text: string) =>
    void logged.push(`${level} ${text.split(':')[0]}`);
  const logger = { info: note('info'), warn: note('warn'), error: note('error') };
  const { ps, peer, clock } = virtualClient({ logger });
  await ps.connect();
  peer.socket.receive({ type: 'error', code: 'going_away', message: 'It is shutting down.' });
  peer.socket.drop(1001, 'going_away');
  assert.equal(ps.lastFailure?.reason, 'It is shutting down.');
  await clock.advance(2_000);
  await turns();
  assert.equal(ps.state, 'connected');
  assert.deepEqual(logged, ['info going_away']);
  await ps.close({ timeout: 0 });
});

for (const [told, code, reason, expected] of [
  ['going_away', 1001, 'going_away', 'It moves.'],
  ['going_away', 1001, 'The connection was closed.', 'It moves.'],
  ['later_code', 4999, 'later_code', 'It moves.'],
  ['internal', 1001, 'going_away', 'going_away'],
  ['going_away', 1006, 'The connection was lost.', 'The connection was lost.'],
  [undefined, 1001, 'Upgrade to version 7.', 'Upgrade to version 7.'],
] as const) {
  test(`the reason of an end is the error before it, if their codes agree: ${told}, ${code}, ${reason}`, async () => {
    const { ps, peer } = virtualClient({
      logger: { info: () => {}, warn: () => {}, error: () => {} },
    });
    await ps.connect();
    if (told) peer.socket.receive({ type: 'error', code: told, message: 'It moves.' });
    peer.socket.drop(code, reason);
    assert.equal(ps.lastFailure?.reason, expected);
    await ps.close({ timeout: 0 });
  });
}

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
