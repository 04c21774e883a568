import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Rotations } from '../../../examples/demo/browser/rotations.js';

test('a renewal counts once, although the client requests its token twice', () => {
  const rotations = new Rotations();
  assert.equal(rotations.fetched('connect', 6_000), false);
  assert.equal(rotations.fetched('expiring', 9_000), true);
  assert.equal(rotations.fetched('expiring', 9_020), false);
  assert.equal(rotations.fetched('expiring', 12_000), true);
  assert.equal(rotations.count, 2);
});

test('a token for a new connection is not a renewal', () => {
  const rotations = new Rotations();
  rotations.fetched('connect', 6_000);
  rotations.fetched('connect', 12_000);
  assert.equal(rotations.count, 0);
});
