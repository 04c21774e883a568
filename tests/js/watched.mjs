// Starts programs that do not outlive this process, even if that is killed.

import { spawn } from 'node:child_process';

/** Milliseconds in which a program ends after SIGTERM. */
const GRACE = 10_000;

/**
 * Runs a program, and kills its process group when standard input ends: Node closes it when the program
 * has ended. After a SIGTERM to the group, it waits until the program ends in its own way.
 */
const SCRIPT = `
trap : TERM
exec 3<&0 </dev/null
{ trap '' TERM; read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &
"$@" 3<&-
exit $?
`;

/**
 * Start a program in a process group of its own. Its standard input is empty.
 *
 * @param command The program and its arguments.
 * @param options Options of `spawn`, without `stdio` and `timeout`.
 * @param outputs Its standard output and error, as in `stdio`.
 * @param limit Milliseconds after which it is ended; by default, it has no limit.
 */
export function watched(command, options, outputs, limit) {
  const stdio = ['pipe', ...outputs];
  const child = spawn('sh', ['-c', SCRIPT, 'sh', ...command], {
    ...options,
    stdio,
    detached: true,
  });
  if (limit === undefined) return child;
  let timer = setTimeout(() => {
    endGroup(child);
    timer = setTimeout(() => child.stdin.destroy(), GRACE);
  }, limit);
  return child.once('exit', () => clearTimeout(timer));
}

/** Ask a program and the processes that it has started to end. */
export function endGroup({ pid, exitCode, signalCode }) {
  if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGTERM');
}
