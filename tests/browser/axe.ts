/** Runs the rules of axe-core in a page whose policy forbids foreign scripts. */

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { AxeResults, RunOptions } from 'axe-core';
import type { Page } from 'playwright-core';

const OPTIONS: RunOptions = {
  runOnly: {
    type: 'tag',
    values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  },
  rules: { 'label-content-name-mismatch': { enabled: true } },
  // Not what passes: collecting it takes longer than the checks.
  resultTypes: ['violations'],
};

let source: Promise<string> | undefined;

/** The violations that axe finds, in words; empty if there are none. */
export async function axeViolations(page: Page): Promise<readonly string[]> {
  if (!(await page.evaluate(() => 'axe' in globalThis))) {
    const required = createRequire(join(process.cwd(), 'package.json'));
    source ??= readFile(required.resolve('axe-core/axe.min.js'), 'utf8');
    // Use the developer protocol, because the policy of the page does not apply to it.
    await page.evaluate(await source);
  }
  const found = await page.evaluate(async (options) => {
    const { axe } = globalThis as unknown as {
      axe: { run(context: Document, options: unknown): Promise<AxeResults> };
    };
    return (await axe.run(document, options)).violations;
  }, OPTIONS);
  return found.flatMap(({ id, help, nodes }) =>
    nodes.slice(0, 3).map(({ target }) => `${id}: ${help} (${target.join(' ')})`),
  );
}
