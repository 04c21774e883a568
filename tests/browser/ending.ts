/** Closes what a test opened in reverse order, so that no page loses its server first. */

import type { TestContext } from 'node:test';

const opened = new WeakMap<TestContext, (() => unknown)[]>();

/** Register a function to call when the test ends, before functions registered earlier. */
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
