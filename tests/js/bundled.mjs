// Bundles the TypeScript tests of a folder for Node, and runs them.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { startForks } from './forks.mjs';

export const root = fileURLToPath(new URL('../..', import.meta.url));

/**
 * The test files of a folder of tests/. The program ends with 2 where none is meant.
 *
 * @param folder Its name.
 * @param words With some, the files whose names have one of them.
 */
export function chosen(folder, words) {
  const names = readdirSync(join(root, 'tests', folder))
    .filter((name) => name.endsWith('.test.ts'))
    .filter((name) => !words.length || words.some((word) => name.includes(word)))
    .sort();
  if (!names.length) {
    process.stderr.write(
      `No test file of tests/${folder}/ has ${words.join(' or ')} in its name.\n`,
    );
    process.exit(2);
  }
  return names;
}

/**
 * Run them, two files at a time; the exit code.
 *
 * @param folder Its name.
 * @param names Of `chosen`.
 * @param timeouts Milliseconds for one test, and for all.
 * @param env More variables of their environment.
 */
export async function run(folder, names, timeouts, env = {}) {
  const built = join(root, 'node_modules', '.cache', `${folder}-tests`, String(process.pid));
  const forks = await startForks(root);
  try {
    await build({
      absWorkingDir: root,
      entryPoints: names.map((name) => join(root, 'tests', folder, name)),
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
    const tests = spawn(
      process.execPath,
      [
        '--enable-source-maps',
        '--test',
        '--test-concurrency=2',
        `--test-timeout=${timeouts.test}`,
        `--test-reporter=${join(root, 'tests', 'js', 'reporter.mjs')}`,
        ...names.map((name) => join(built, name.replace(/\.ts$/, '.mjs'))),
      ],
      {
        cwd: root,
        stdio: 'inherit',
        timeout: timeouts.all,
        env: { ...process.env, ...env, ...forks.env },
      },
    );
    const [status] = await once(tests, 'exit');
    return status ?? 1;
  } finally {
    await forks.stop();
    rmSync(built, { recursive: true, force: true });
  }
}
