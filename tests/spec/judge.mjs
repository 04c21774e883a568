// Judges values with the generated guards: cases as JSON on stdin, verdicts as JSON on stdout; null
// for types without a guard, which the client only sends, or checks as part of another type.
// Usage: node judge.mjs FOLDER_OF_GENERATED_MODULES

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const load = (name) => import(pathToFileURL(join(process.argv[2], name)));
const guards = { ...(await load('wire.js')), ...(await load('http.js')) };
const schema = new URL('../../spec/pubsub.schema.json', import.meta.url);
const { mapping } = JSON.parse(readFileSync(schema, 'utf8')).$defs.ServerFrame.discriminator;
for (const [type, path] of Object.entries(mapping)) {
  const name = path.replace(/.*\//, 'is');
  guards[name] = (value) => value?.type === type && guards.isServerFrame(value);
}
const cases = JSON.parse(readFileSync(0, 'utf8'));
const verdicts = cases.map(({ kind, text }) => guards[`is${kind}`]?.(JSON.parse(text)) ?? null);
process.stdout.write(JSON.stringify(verdicts));
