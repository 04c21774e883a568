/** Each fault of `make statements` can be planted. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { FAULTS } from './loss_faults.js';

test('the text that a fault replaces is in its source once', () => {
  for (const { breaks, source, text } of FAULTS) {
    const parts = readFileSync(join(process.cwd(), source), 'utf8').split(text);
    assert.equal(parts.length, 2, `${breaks} ${source} does not have once: ${text}`);
  }
});
