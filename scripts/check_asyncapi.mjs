// Validates an AsyncAPI description and its references. Fails on everything more severe than a hint.
// Usage: node scripts/check_asyncapi.mjs FILE

import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Parser } from '@asyncapi/parser';

const WARNING = 1;
const LEVELS = ['error', 'warning', 'info', 'hint'];

const file = process.argv[2];
if (file === undefined) {
  console.error('usage: node scripts/check_asyncapi.mjs FILE');
  process.exit(2);
}
const source = resolve(file);
const { document, diagnostics } = await new Parser().parse(await readFile(source, 'utf8'), { source });
for (const { severity, path, message, range } of diagnostics) {
  console.error(`${file}:${range.start.line + 1}: ${LEVELS[severity]}: ${path.join('.')}: ${message}`);
}
const failed = document === undefined || diagnostics.some(({ severity }) => severity <= WARNING);
if (!failed) {
  console.log(`${file}: ${document.channels().all().length} channels, ${document.operations().all().length} operations, valid`);
}
process.exit(failed ? 1 : 0);
