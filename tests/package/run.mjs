// Packs the package, installs it into an empty folder, and runs the tests that use it from there.
// Usage: node tests/package/run.mjs [word…]. With words, it runs only files whose names contain one
// of them.

import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chosen, root, run } from '../js/bundled.mjs';

const names = chosen('package', process.argv.slice(2));

/** Run a command to its end, and show its output if it fails. */
function execute(command, parameters, cwd) {
  const { status, error, stdout } = spawnSync(command, parameters, { cwd, encoding: 'utf8' });
  if (error) throw error;
  if (status !== 0) throw new Error(`${command} ${parameters.join(' ')}\n${stdout}`);
}

// Outside of the repository, where only the package is found.
const application = realpathSync(mkdtempSync(join(tmpdir(), 'pubsub-package-')));
let status = 1;
try {
  execute(process.execPath, [join(root, 'js', 'build.mjs'), '--pack', application], root);
  const tarball = readdirSync(application).find((name) => name.endsWith('.tgz'));
  writeFileSync(join(application, 'package.json'), '{"private":true}\n');
  const quiet = ['--silent', '--offline', '--ignore-scripts', '--no-audit', '--no-fund'];
  execute('npm', ['install', `./${tarball}`, ...quiet], application);
  cpSync(join(root, 'tests', 'package', 'programs'), application, { recursive: true });
  const timeouts = { test: 300_000, all: 900_000 };
  status = await run('package', names, timeouts, { PUBSUB_APPLICATION: application });
} finally {
  rmSync(application, { recursive: true, force: true });
}
process.exit(status);
