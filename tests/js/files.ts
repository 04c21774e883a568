/** Reads files of `spec/`. Run the tests from the root of the repository. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const SPEC = join(process.cwd(), 'spec');

/** Parse a JSON file of `spec/`. The caller states its type. */
export function load<T>(...path: string[]): T {
  return JSON.parse(readFileSync(join(SPEC, ...path), 'utf8')) as T;
}

/** Names of the JSON files of a folder, without the extension. */
export function names(...path: string[]): string[] {
  return readdirSync(join(SPEC, ...path))
    .filter((name) => name.endsWith('.json'))
    .map((name) => name.slice(0, -'.json'.length))
    .sort();
}
