// Bundles the tests that need a browser, and runs them.
// Usage: node tests/browser/run.mjs [word…]; with words, the files whose names have one of them.

import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = join(root, 'tests', 'browser');
const built = join(root, 'node_modules', '.cache', 'browser-tests', String(process.pid));
const words = process.argv.slice(2);

const names = readdirSync(folder)
  .filter((name) => name.endsWith('.test.ts'))
  .filter((name) => !words.length || words.some((word) => name.includes(word)))
  .sort();
if (!names.length) {
  process.stderr.write(`No test file of tests/browser/ has ${words.join(' or ')} in its name.\n`);
  process.exit(2);
}
mkdirSync(join(folder, 'artefacts'), { recursive: true });
await build({
  absWorkingDir: root,
  entryPoints: names.map((name) => join(folder, name)),
  outdir: built,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  packages: 'external',
  platform: 'node',
  format: 'esm',
  target: 'node20',
  sourcemap: 'inline',
  logLevel: 'warning',
});
const { status } = spawnSync(
  process.execPath,
  [
    '--enable-source-maps',
    '--test',
    '--test-concurrency=2',
    '--test-timeout=120000',
    `--test-reporter=${join(root, 'tests', 'js', 'reporter.mjs')}`,
    ...names.map((name) => join(built, name.replace(/\.ts$/, '.mjs'))),
  ],
  { cwd: root, stdio: 'inherit', timeout: 600_000 },
);
rmSync(built, { recursive: true, force: true });
process.exit(status ?? 1);
