// Compiles the TypeScript sources with their tests, and runs them.
// Usage: node run.mjs [--build | --fast]; with --build it prints where the compiled files are, and
// ends; with --fast it leaves out what takes longer than all the rest.

import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const built = join(root, 'node_modules', '.cache', 'js-tests', String(process.pid));

/** Faults planted into the session, each searched for by many simulations. */
const SLOW = /mutants/;

// Where a program of this terminal connects to is not where the tests do.
const env = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^HANZO_PUBSUB_(URL|REST_URL|TOKEN)$/.test(name)),
);

function node(...args) {
  const { status } = spawnSync(process.execPath, args, {
    cwd: root,
    env,
    stdio: ['ignore', 2, 2],
    timeout: 600_000,
  });
  return status ?? 1;
}

rmSync(built, { recursive: true, force: true });
mkdirSync(built, { recursive: true });
writeFileSync(join(built, 'package.json'), '{"type":"module"}\n');
const compiler = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
let status = node(compiler, '--project', 'tests/js/tsconfig.json', '--outDir', built);
if (status === 0 && process.argv[2] === '--build') {
  process.stdout.write(`${built}\n`);
  process.exit(0);
}
if (status === 0) {
  const tests = readdirSync(join(built, 'tests', 'js'), { recursive: true })
    .filter((name) => name.endsWith('.test.js'))
    .filter((name) => process.argv[2] !== '--fast' || !SLOW.test(name))
    .sort()
    .map((name) => join(built, 'tests', 'js', name));
  const reporter = join(root, 'tests', 'js', 'reporter.mjs');
  status = node(
    '--enable-source-maps',
    '--test',
    '--test-timeout=300000',
    `--test-reporter=${reporter}`,
    ...tests,
  );
}
rmSync(built, { recursive: true, force: true });
process.exit(status);
