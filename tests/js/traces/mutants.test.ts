/**
 * The traces cover the session: without any step or guard of the lifecycle, or with any fault, a
 * trace fails.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { names } from '../files.js';
import { bundle, load, plant } from '../planting.js';
import { FAULTS } from './faults.js';
import { loadTrace, type run, type Trace } from './runner.js';

type Runner = { readonly run: typeof run };

const traces: readonly Trace[] = names('traces').map((name) => loadTrace(`${name}.json`));
const lines = (await bundle('traces/runner.ts')).split('\n');

/** The runner with one fault in the generated lifecycle, by description of the fault. */
function* faults(): Generator<[name: string, text: string]> {
  for (const name of ['lifecycle', 'connected']) yield* faultsIn(name);
}

/** The runner with one fault in a generated module. */
function* faultsIn(name: string): Generator<[name: string, text: string]> {
  const first = lines.indexOf(`// js/src/generated/${name}.ts`);
  assert.ok(first >= 0, `${name} is in the bundle`);
  const length = lines.slice(first + 1).findIndex((line) => line.startsWith('// '));
  let event = '';
  for (const [n, line] of [...lines.entries()].slice(first, first + length)) {
    event = /^function (\w+)/.exec(line)?.[1] ?? event;
    const place = `${event}, line ${n - first}`;
    const planted = (text: string): string =>
      lines.map((other, at) => (at === n ? text : other)).join('\n');
    if (/^ +m\._[\w.]+\(.*\);$/.test(line)) yield [`${place} without ${line.trim()}`, planted('')];
    const guard = /if \((!?m\.(?:_|state !==).*)\) \{$/.exec(line)?.[1];
    if (guard) {
      yield [`${place} whether or not ${guard}`, planted(line.replace(guard, 'true'))];
      yield [`${place} never ${guard}`, planted(line.replace(guard, 'false'))];
    }
  }
}

function isNoticed({ run: broken }: Runner): boolean {
  return traces.some((trace) => {
    try {
      broken(trace);
      return false;
    } catch {
      return true;
    }
  });
}

describe('a trace fails on', () => {
  const all = [...faults()];
  test('many faults', () => assert.ok(all.length > 200));
  for (const [name, text] of all) {
    test(name, async () => assert.ok(isNoticed(await load<Runner>(text)), 'each trace holds'));
  }
});

describe('a trace detects that', () => {
  for (const [name, { file, from, to }] of Object.entries(FAULTS)) {
    test(name, async () => {
      const path = join('session', file);
      const parts = readFileSync(join(process.cwd(), 'js', 'src', path), 'utf8').split(from);
      assert.equal(parts.length, 2, `${file} does not hold once: ${from}`);
      const planted = await plant<Runner>('traces/runner.ts', path, parts.join(to));
      assert.ok(isNoticed(planted), 'each trace holds');
    });
  }
});
