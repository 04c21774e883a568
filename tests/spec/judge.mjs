// Judges values with the generated guards: cases as JSON on stdin, verdicts as JSON on stdout.
// Usage: node judge.mjs WIRE_MODULE

import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const wire = await import(pathToFileURL(process.argv[2]));
const cases = JSON.parse(readFileSync(0, 'utf8'));
const verdicts = cases.map(({ kind, text }) => wire[`is${kind}`](JSON.parse(text)));
process.stdout.write(JSON.stringify(verdicts));
