// Runs the process that forks servers for the tests; see tests/fork_server.py.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Start it, and wait until it can start servers.
 *
 * @param root The repository.
 * @returns `env`, an environment variable for the tests; `stop`, which ends the process.
 */
export async function startForks(root) {
  const folder = mkdtempSync(join(tmpdir(), 'pubsub-forks-'));
  const socket = join(folder, 'socket');
  const local = join(root, '.venv', 'bin', 'python');
  const python = existsSync(local) ? local : 'python3';
  const child = spawn(python, ['-m', 'tests.fork_server', socket], {
    cwd: root,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  await Promise.race([
    once(child.stdout, 'data'),
    ended.then(() => Promise.reject(new Error('tests/fork_server.py ended at once'))),
  ]);
  const stop = async () => {
    child.stdin.end();
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  return { env: { HANZO_PUBSUB_TEST_FORKS: socket }, stop };
}
