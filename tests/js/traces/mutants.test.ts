/** The traces hold the lifecycle: a trace fails without any one of its steps, and for each guard. */

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { names } from '../files.js';
import { bundle, load } from '../planting.js';
import { loadTrace, type run, type Trace } from './runner.js';

type Runner = { readonly run: typeof run };

const traces: readonly Trace[] = names('traces').map((name) => loadTrace(`${name}.json`));
const lines = (await bundle('traces/runner.ts')).split('\n');

/** The runner with one fault each in the generated lifecycle, by what the fault is. */
function* faults(): Generator<[name: string, text: string]> {
  const first = lines.indexOf('// js/src/generated/lifecycle.ts');
  const length = lines.slice(first + 1).findIndex((line) => line.startsWith('// '));
  let event = '';
  for (const [n, line] of [...lines.entries()].slice(first, first + length)) {
    event = /^function (\w+)/.exec(line)?.[1] ?? event;
    const place = `${event}, line ${n - first}`;
    const planted = (text: string): string =>
      lines.map((other, at) => (at === n ? text : other)).join('\n');
    if (/^ +m\._\w+\(.*\);$/.test(line)) yield [`${place} without ${line.trim()}`, planted('')];
    const guard = /if \((!?m\._.*)\) \{$/.exec(line)?.[1];
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
