// What failed, and one line of numbers.

export default async function* report(events) {
  let passed = 0;
  let failed = 0;
  for await (const { type, data } of events) {
    if (type === 'test:stderr' || type === 'test:stdout') yield data.message;
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.skip !== undefined || data.todo !== undefined) continue;
    if (type === 'test:pass') {
      passed += 1;
    } else if (data.details.error.failureType !== 'subtestsFailed') {
      failed += 1;
      const { cause } = data.details.error;
      yield `FAILED ${data.name}\n${cause?.stack ?? cause ?? data.details.error}\n`;
    }
  }
  yield `${passed} passed, ${failed} failed\n`;
}
