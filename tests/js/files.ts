/** Files of `spec/`. Tests are run from the root of the repository. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const SPEC = join(process.cwd(), 'spec');

/** A JSON file of `spec/`, taken to be what its reader says it is. */
export function load<T>(...path: string[]): T {
  return JSON.parse(readFileSync(join(SPEC, ...path), 'utf8')) as T;
}

/** Names of the JSON files of a folder, without the ending. */
export function names(...path: string[]): string[] {
  return readdirSync(join(SPEC, ...path))
    .filter((name) => name.endsWith('.json'))
    .map((name) => name.slice(0, -'.json'.length))
    .sort();
}
