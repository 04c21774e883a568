// Compiles the TypeScript sources with their tests, and runs them. `make check-js` checks the
// types.
// Usage: node run.mjs [--build | --fast | WORD …]. With --build it prints the folder of the compiled
// files, and exits. With --fast it leaves out the slowest tests. With words it runs the files whose
// names contain one of them.

import { once } from 'node:events';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { startForks } from './forks.mjs';
import { watched } from './watched.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const built = join(root, 'node_modules', '.cache', 'js-tests', String(process.pid));

/** Folders whose files stay separate modules, because tests replace some of them. */
const SOURCES = [
  'js/src',
  'server-mock/console/src',
  'examples/demo/browser',
  'tests/js',
  'tests/conformance',
];

/** Tests that plant faults into the session and search for each with many simulations; begun first. */
const SLOW = /mutants/;

/** Seconds for which all tests together may run. */
const LIMIT = 600;

// The tests must not use the server that the environment of the terminal names.
const env = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^HANZO_PUBSUB_(URL|REST_URL|TOKEN)$/.test(name)),
);

rmSync(built, { recursive: true, force: true });
mkdirSync(built, { recursive: true });
writeFileSync(join(built, 'package.json'), '{"type":"module"}\n');
await build({
  absWorkingDir: root,
  entryPoints: SOURCES.map((folder) => `${folder}/**/*.ts`),
  outbase: root,
  outdir: built,
  tsconfig: 'tests/js/tsconfig.json',
  format: 'esm',
  platform: 'node',
  target: 'es2022',
  sourcemap: true,
  logLevel: 'warning',
});
if (process.argv[2] === '--build') {
  process.stdout.write(`${built}\n`);
  process.exit(0);
}
const words = process.argv.slice(2).filter((word) => !word.startsWith('--'));
const tests = readdirSync(join(built, 'tests', 'js'), { recursive: true })
  .filter((name) => name.endsWith('.test.js'))
  .filter((name) => process.argv[2] !== '--fast' || !SLOW.test(name))
  .filter((name) => words.length === 0 || words.some((word) => name.includes(word)))
  .sort((a, b) => Number(SLOW.test(b)) - Number(SLOW.test(a)) || (a < b ? -1 : 1))
  .map((name) => join(built, 'tests', 'js', name));
if (tests.length === 0) throw new Error(`No test file contains ${words.join(' or ')}.`);
const reporter = join(root, 'tests', 'js', 'reporter.mjs');
const forks = await startForks(root);
const began = Date.now();
const running = watched(
  [
    process.execPath,
    '--enable-source-maps',
    '--test',
    // Node leaves one core for itself, which is half of a small machine.
    `--test-concurrency=${availableParallelism()}`,
    '--test-timeout=300000',
    `--test-reporter=${reporter}`,
    ...tests,
  ],
  { cwd: root, env: { ...env, ...forks.env } },
  [2, 2],
  LIMIT * 1000,
);
const [status, signal] = await once(running, 'exit');
if (Date.now() - began > LIMIT * 1000)
  console.error(`stopped the tests: they took longer than ${LIMIT} s`);
else if (signal !== null) console.error(`the tests were ended by ${signal}`);
await forks.stop();
rmSync(built, { recursive: true, force: true });
process.exit(status ?? 1);
