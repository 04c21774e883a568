import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';

import { PubSub } from '../../../js/src/client.js';
import type { Driver } from '../../../js/src/runtime/driver.js';

test('the order of publishes over HTTP keeps nothing of the settled ones', async () => {
  const fetch = async () => Response.json({ id: 'msg_1', timestamp: 5 });
  const ps = new PubSub({ url: 'http://127.0.0.1', token: 'x', fetch });
  const { _driver: driver } = ps as unknown as { readonly _driver: Driver };
  const kept: string[] = [];
  for (let data = 0; data < 3; data += 1) {
    await ps.publish('a', { data }, { via: 'rest' });
    kept.push(inspect(await driver._background?.publisher.requests, { depth: null }));
  }
  assert.equal(new Set(kept).size, 1, kept.at(-1));
});

test('a publish that does not get its turn in time has the id with which to repeat it', async () => {
  let answers = true;
  const fetch = async () =>
    answers ? Response.json({ id: 'msg_1', timestamp: 5 }) : new Promise<Response>(() => {});
  const ps = new PubSub({ url: 'http://127.0.0.1', token: 'x', fetch });
  // Load the parts of the client before the short timeout.
  await ps.publish('a', { data: 0 }, { via: 'rest' });
  answers = false;
  const ending = new AbortController();
  const { signal } = ending;
  const first = ps.publish('a', { data: 1 }, { via: 'rest', signal }).catch(() => {});
  const late = ps.publish('a', { data: 2, id: 'mine' }, { via: 'rest', timeout: 30 });
  await assert.rejects(late, { name: 'OperationTimeout', id: 'mine', outcomeUnknown: false });
  ending.abort();
  await first;
});
