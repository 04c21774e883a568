/**
 * What pages run of the sources, for `make coverage`: the counts of V8 in Chromium, in the files and
 * the format of Node's NODE_V8_COVERAGE. Without that variable, nothing is measured.
 */

import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Page } from 'playwright-core';

/** Folder of the counts. */
const FOLDER = process.env['NODE_V8_COVERAGE'];

/** Whether coverage is measured. */
export const IS_MEASURED: boolean = Boolean(FOLDER);

type Entries = Awaited<ReturnType<Page['coverage']['stopJSCoverage']>>;

/** Count what a page runs. The returned function writes the counts; call it before the page closes. */
export async function measure(page: Page): Promise<() => Promise<void>> {
  if (!FOLDER) return async () => {};
  await page.coverage.startJSCoverage({ resetOnNavigation: false });
  return async () => {
    // Counts of a page that a test closes are lost.
    if (!page.isClosed()) write(FOLDER, await page.coverage.stopJSCoverage());
  };
}

/** Write the counts of the programs that have a source map. */
function write(folder: string, entries: Entries): void {
  const result: object[] = [];
  const maps: Record<string, object> = {};
  for (const { source, functions, scriptId } of entries) {
    const found = /\n\/\/# sourceMappingURL=data:application\/json;base64,(\S+)\s*$/.exec(
      source ?? '',
    );
    if (!source || !found?.[1]) continue;
    const map = JSON.parse(Buffer.from(found[1], 'base64').toString()) as { sources: string[] };
    // Pages get the same program at many addresses: its content is its name.
    const name = createHash('sha256').update(source).digest('hex');
    const url = pathToFileURL(join(process.cwd(), 'tests', 'browser', `${name}.js`)).href;
    // The bundler names sources relative to the root of the site, which it takes for that of the disk.
    const sources = map.sources.map((path) => pathToFileURL(resolve('/', path)).href);
    result.push({ scriptId, url, functions });
    const lineLengths = source.split('\n').map(({ length }) => length);
    maps[url] = { lineLengths, data: { ...map, sources }, url: null };
  }
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `coverage-chromium-${randomUUID()}.json`);
  writeFileSync(file, JSON.stringify({ result, 'source-map-cache': maps }));
}
