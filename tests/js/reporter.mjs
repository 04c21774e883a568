// Prints failures, and one line of totals. It also appends a line for each finished test to the
// file HANZO_PUBSUB_TEST_REPORT, for scripts/run_tests.py.

import { appendFileSync } from 'node:fs';

const file = process.env.HANZO_PUBSUB_TEST_REPORT;

/** Every test runs there; other systems may lack what some need. */
const LINUX = process.platform === 'linux';

function tell(name, milliseconds, outcome) {
  if (!file) return;
  const line = { test: name, seconds: milliseconds / 1000, outcome };
  appendFileSync(file, `${JSON.stringify(line)}\n`);
}

export default async function* report(events) {
  let passed = 0;
  let failed = 0;
  for await (const { type, data } of events) {
    if (type === 'test:stderr' || type === 'test:stdout') yield data.message;
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const { duration_ms, error, type: kind } = data.details;
    // The time of a group is the sum of its tests.
    const milliseconds = kind === 'suite' ? 0 : duration_ms;
    if (LINUX && (data.skip !== undefined || data.todo !== undefined)) {
      failed += 1;
      process.exitCode = 1;
      tell(data.name, milliseconds, 'failed');
      yield `FAILED ${data.name}\nNo test may be skipped, or left to do.\n`;
    } else if (type === 'test:pass') {
      passed += 1;
      tell(data.name, milliseconds, 'passed');
    } else if (error.failureType !== 'subtestsFailed') {
      failed += 1;
      tell(data.name, milliseconds, 'failed');
      const { cause } = error;
      yield `FAILED ${data.name}\n${cause?.stack ?? cause ?? error}\n`;
    }
  }
  yield `${passed} passed, ${failed} failed\n`;
}
