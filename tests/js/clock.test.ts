/** The machine's own clock. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SystemClock } from '../../js/src/clock.js';

test('a timer that is overdue starts with a delay of 0, because Node warns about negative ones', (t) => {
  const set = t.mock.method(globalThis, 'setTimeout');
  new SystemClock().callLater(-1.5, () => {}).cancel();
  assert.equal(set.mock.calls[0]?.arguments[1], 0);
});
