/** Times that are probably in seconds. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PubSub, type PubSubOptions } from '../../js/src/index.js';
import { warnOfSeconds } from '../../js/src/settings/units.js';

/** What is logged about these options. */
function logged(options: PubSubOptions): string[] {
  const lines: string[] = [];
  warnOfSeconds({ ...options, logger: { warn: (text) => lines.push(text), error: () => {} } });
  return lines;
}

test('a new client logs times that look like seconds', async () => {
  const logged = new Promise<string>((resolve) => {
    const logger = { warn: resolve, error: () => {} };
    new PubSub({ url: 'ws://localhost', token: 'x', logger, fetchTimeout: 10, openTimeout: 5 });
  });
  assert.equal(
    await logged,
    '`fetchTimeout` is 10 ms, and `openTimeout` is 5 ms. Times are in milliseconds: for 10 s, pass 10000.',
  );
});

test('a logger may be a module, which has no primitive value', async () => {
  const logger = await import('node:console');
  const ps = new PubSub({ url: 'ws://localhost', token: 'x', logger });
  assert.equal(ps.state, 'initialized');
});

test('each option is logged once, however many clients have it', () => {
  assert.match(logged({ pingInterval: 15 })[0] ?? '', /^`pingInterval` is 15 ms\. /);
  assert.deepEqual(logged({ pingInterval: 15 }), []);
  assert.match(logged({ pingInterval: 15, suspendAfter: 120 })[0] ?? '', /^`suspendAfter` is 120/);
});

test('a longest delay of seconds is logged, because it would flood the server', () => {
  assert.match(logged({ retry: { base: 1, cap: 30 } })[0] ?? '', /^`retry\.cap` is 30 ms/);
});

for (const [what, options] of [
  ['times as tests use them', { operationTimeout: 50, closeTimeout: 100, pingInterval: 50 }],
  ['a time that ends at once', { operationTimeout: 1 }],
  ['short delays of a test', { retry: { base: 20, cap: 100 } }],
  ['another time of a second or more', { operationTimeout: 10, pongTimeout: 5_000 }],
  ['no time', {}],
] as const satisfies readonly (readonly [string, PubSubOptions])[]) {
  test(`nothing is logged for ${what}`, () => {
    assert.deepEqual(logged(options), []);
  });
}
