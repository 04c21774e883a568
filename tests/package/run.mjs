// Packs the package, installs it into an empty folder, and runs the tests that use it from there.
// Usage: node tests/package/run.mjs [word…]; with words, the files whose names have one of them.

import { spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('../..', import.meta.url));
const here = join(root, 'tests', 'package');
const built = join(root, 'node_modules', '.cache', 'package-tests', String(process.pid));
const words = process.argv.slice(2);

const names = readdirSync(here)
  .filter((name) => name.endsWith('.test.ts'))
  .filter((name) => !words.length || words.some((word) => name.includes(word)))
  .sort();
if (!names.length) {
  process.stderr.write(`No test file of tests/package/ has ${words.join(' or ')} in its name.\n`);
  process.exit(2);
}

/** Run a command to its end; its output is shown where it fails. */
function run(command, parameters, cwd) {
  const { status, error, stdout } = spawnSync(command, parameters, { cwd, encoding: 'utf8' });
  if (error) throw error;
  if (status !== 0) throw new Error(`${command} ${parameters.join(' ')}\n${stdout}`);
}

// Outside of this folder, where nothing but the package is found.
const application = realpathSync(mkdtempSync(join(tmpdir(), 'pubsub-package-')));
let status = 1;
try {
  run(process.execPath, [join(root, 'js', 'build.mjs'), '--pack', application], root);
  const tarball = readdirSync(application).find((name) => name.endsWith('.tgz'));
  writeFileSync(join(application, 'package.json'), '{"private":true}\n');
  const quiet = ['--silent', '--offline', '--ignore-scripts', '--no-audit', '--no-fund'];
  run('npm', ['install', `./${tarball}`, ...quiet], application);
  cpSync(join(here, 'programs'), application, { recursive: true });
  mkdirSync(built, { recursive: true });
  await build({
    absWorkingDir: root,
    entryPoints: names.map((name) => join(here, name)),
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
  const tests = spawnSync(
    process.execPath,
    [
      '--enable-source-maps',
      '--test',
      '--test-concurrency=2',
      '--test-timeout=300000',
      `--test-reporter=${join(root, 'tests', 'js', 'reporter.mjs')}`,
      ...names.map((name) => join(built, name.replace(/\.ts$/, '.mjs'))),
    ],
    {
      cwd: root,
      stdio: 'inherit',
      timeout: 900_000,
      env: { ...process.env, PUBSUB_APPLICATION: application },
    },
  );
  status = tests.status ?? 1;
} finally {
  rmSync(built, { recursive: true, force: true });
  rmSync(application, { recursive: true, force: true });
}
process.exit(status);
