import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { names } from './files.js';
import { loadTrace, run, TraceFailed } from './traces/runner.js';

describe('the session does exactly what the trace says', () => {
  for (const name of names('traces')) {
    test(name, () => {
      run(loadTrace(`${name}.json`));
    });
  }
  for (const name of names('traces', 'bounds')) {
    test(name, () => {
      run(loadTrace('bounds', `${name}.json`));
    });
  }
});

describe('the runner detects a wrong trace', () => {
  for (const name of names('traces', 'invalid')) {
    test(name, () => {
      assert.throws(() => run(loadTrace('invalid', `${name}.json`)), TraceFailed);
    });
  }
});
