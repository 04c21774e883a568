// Bundles the TypeScript tests of a folder for Node, and runs them.

import { once } from 'node:events';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { startForks } from './forks.mjs';
import { watched } from './watched.mjs';

export const root = fileURLToPath(new URL('../..', import.meta.url));

/**
 * Find the test files of a folder of tests/. The program exits with 2 if no file matches.
 *
 * @param folder Its name.
 * @param words If not empty, only files whose names contain one of these words.
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
 * Run the tests, two processes at a time; returns the exit code.
 *
 * @param folder Its name.
 * @param names The result of `chosen`.
 * @param timeouts Timeouts in milliseconds: of one test, of the tests of one process, and of all.
 * @param env Additional environment variables.
 * @param parts Number of processes that share the files; default one per file.
 */
export async function run(folder, names, timeouts, env = {}, parts = names.length) {
  const built = join(root, 'node_modules', '.cache', `${folder}-tests`, String(process.pid));
  mkdirSync(built, { recursive: true });
  const entries = Array.from({ length: Math.min(parts, names.length) }, (_, part) => {
    const files = names.filter((_, index) => index % parts === part);
    const imports = files.map((name) => `import '${join(root, 'tests', folder, name)}';\n`);
    const entry = join(built, files.length === 1 ? files[0] : `part${part}.test.ts`);
    writeFileSync(entry, imports.join(''));
    return entry;
  });
  const forks = await startForks(root);
  try {
    await build({
      absWorkingDir: root,
      entryPoints: entries,
      outdir: built,
      outExtension: { '.js': '.mjs' },
      bundle: true,
      packages: 'external',
      platform: 'node',
      format: 'esm',
      target: 'node20',
      sourcemap: 'inline',
      // Where coverage is measured, a line that is in no bundle would count as covered.
      treeShaking: !process.env.NODE_V8_COVERAGE,
      logLevel: 'warning',
    });
    const tests = watched(
      [
        process.execPath,
        '--enable-source-maps',
        '--test',
        '--test-concurrency=2',
        `--test-timeout=${timeouts.test}`,
        `--test-reporter=${join(root, 'tests', 'js', 'reporter.mjs')}`,
        ...entries.map((name) => name.replace(/\.ts$/, '.mjs')),
      ],
      { cwd: root, env: { ...process.env, ...env, ...forks.env } },
      ['inherit', 'inherit'],
      timeouts.all,
    );
    const [status] = await once(tests, 'exit');
    return status ?? 1;
  } finally {
    await forks.stop();
    rmSync(built, { recursive: true, force: true });
  }
}
