/** What a test opened is closed in the opposite order, so that no page sees its server go. */

import type { TestContext } from 'node:test';

const opened = new WeakMap<TestContext, (() => unknown)[]>();

/** Have a function called when the test ends, before those that were named earlier. */
export function atEnd(t: TestContext, close: () => unknown): void {
  const known = opened.get(t);
  if (known) {
    known.push(close);
    return;
  }
  const all = [close];
  opened.set(t, all);
  t.after(async () => {
    const errors: unknown[] = [];
    for (const each of all.reverse()) {
      try {
        await each();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length) throw errors[0];
  });
}
