import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { ROWS } from '../../js/src/session/table.js';
import { names } from './files.js';
import { loadTrace, run, TraceFailed } from './traces/runner.js';

const fired = new Set<string>();

describe('the session does exactly what the trace says', () => {
  for (const name of names('traces')) {
    test(name, () => {
      for (const row of run(loadTrace(`${name}.json`))) fired.add(row);
    });
  }
});

describe('the runner notices a wrong trace', () => {
  for (const name of names('traces', 'invalid')) {
    test(name, () => {
      assert.throws(() => run(loadTrace('invalid', `${name}.json`)), TraceFailed);
    });
  }
});

test('every row of the lifecycle is fired by some trace', () => {
  const rows = [...ROWS].flatMap(([pair, list]) => list.map((_, n) => `${pair} ${n}`));
  assert.ok(rows.length > 100);
  assert.deepEqual(
    rows.filter((row) => !fired.has(row)),
    [],
  );
});
