// Judges values with the generated guards: cases as JSON on stdin, verdicts as JSON on stdout.
// Usage: node judge.mjs FOLDER_OF_GENERATED_MODULES

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const load = (name) => import(pathToFileURL(join(process.argv[2], name)));
const guards = { ...(await load('wire.js')), ...(await load('http.js')) };
const cases = JSON.parse(readFileSync(0, 'utf8'));
const verdicts = cases.map(({ kind, text }) => guards[`is${kind}`](JSON.parse(text)));
process.stdout.write(JSON.stringify(verdicts));
