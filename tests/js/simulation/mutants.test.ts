/** Each planted fault is found by the simulation within a few seeds. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { plant } from '../planting.js';
import { MUTANTS, type Mutant } from './mutants.js';
import { digest, simulate } from './run.js';

/** Maximum seeds to try; most faults are found within the first ten. */
const SEEDS = 250;

type Simulation = { readonly simulate: typeof simulate };

/** The simulation with a fault. */
function withFault({ file, from, to }: Mutant): Promise<Simulation> {
  const parts = readFileSync(join(process.cwd(), 'js', 'src', file), 'utf8').split(from);
  assert.equal(parts.length, 2, `${file} does not hold once: ${from}`);
  return plant('simulation/run.ts', file, parts.join(to));
}

/** The digest of the log of the correct session, by seed. */
const sound = new Map<number, string>();

function soundDigest(seed: number): string {
  const known = sound.get(seed) ?? digest(simulate(seed));
  sound.set(seed, known);
  return known;
}

/** The first seed that finds the fault. */
function search({ simulate: broken }: Simulation, silent: boolean): number | undefined {
  for (let seed = 0; seed < SEEDS; seed += 1) {
    try {
      const lines = broken(seed);
      if (silent && digest(lines) !== soundDigest(seed)) return seed;
    } catch {
      return seed;
    }
  }
  return undefined;
}

describe('the simulation finds that', () => {
  for (const [name, mutant] of Object.entries(MUTANTS)) {
    test(name, async () => {
      const seed = search(await withFault(mutant), mutant.silent ?? false);
      assert.notEqual(seed, undefined, `survived ${SEEDS} seeds`);
    });
  }
});
