/**
 * `node main.js SEED` prints the log of a run; `node main.js FIRST END` prints one digest per seed.
 */

import { digest, simulate } from './run.js';

const [first = 0, end] = process.argv.slice(2).map(Number);
if (end === undefined) {
  process.stdout.write(simulate(first).join('\n'));
} else {
  for (let seed = first; seed < end; seed += 1) {
    let found: string;
    try {
      found = digest(simulate(seed));
    } catch (error) {
      found = String(error).replaceAll('\n', ' ');
    }
    process.stdout.write(`${seed} ${found}\n`);
  }
}
