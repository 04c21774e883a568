import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { load, names } from './files.js';
import { TraceFailed } from './traces/runner.js';
import { runStream, type StreamTrace } from './traces/streams.js';

describe('writer and reader of a stream do exactly what the trace says', () => {
  for (const name of names('traces', 'streams')) {
    test(name, () => runStream(load<StreamTrace>('traces', 'streams', `${name}.json`)));
  }
});

describe('the runner detects a wrong trace of a stream', () => {
  for (const name of names('traces', 'streams', 'invalid')) {
    test(name, () => {
      const trace = load<StreamTrace>('traces', 'streams', 'invalid', `${name}.json`);
      assert.throws(() => runStream(trace), TraceFailed);
    });
  }
});
