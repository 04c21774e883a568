/**
 * Runs the traces of `spec/traces/`: the given events must cause exactly the given effects.
 *
 * Each language runs the same files. A runner needs a JSON parser and a mapping, but no clock and
 * no socket.
 */

import { type SessionOptions, sessionOptions } from '../../../js/src/settings/session.js';
import { load } from '../files.js';
import { RecordedSession } from './events.js';
import { canonical, readEvent, type StepEvent, showEffect } from './mapping.js';

/** The effects of the session differ from the trace. */
export class TraceFailed extends Error {}

interface Step {
  readonly in: StepEvent;
  readonly out: readonly unknown[];
  readonly slowed?: number;
}

export interface Trace {
  readonly start?: string;
  readonly random?: readonly number[];
  readonly options?: Readonly<Record<string, unknown>>;
  readonly steps: readonly Step[];
}

/** Load a trace; its steps and random numbers follow those of the trace that it starts from. */
export function loadTrace(...path: string[]): Trace {
  const trace = expanded(load('traces', ...path)) as Trace;
  if (!trace.start) return trace;
  const start = loadTrace(`${trace.start}.json`);
  return {
    random: [...(start.random ?? []), ...(trace.random ?? [])],
    options: { ...start.options, ...trace.options },
    steps: [...start.steps, ...trace.steps],
  };
}

/**
 * The value with each `{"times": n, "each": item}` of its lists as n items, in which `#` is the
 * number of the item, from 1.
 */
function expanded(value: unknown): unknown {
  if (typeof value !== 'object' || !value) return value;
  if (!Array.isArray(value)) {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, expanded(one)]));
  }
  return value.flatMap((one: unknown) => {
    const { times, each } = Object(one) as { readonly times?: number; readonly each?: unknown };
    if (times === undefined || each === undefined) return [expanded(one)];
    const text = JSON.stringify(each);
    return Array.from({ length: times }, (_, n) =>
      JSON.parse(text.replaceAll('"#"', `${n + 1}`).replaceAll('#', `${n + 1}`)),
    );
  });
}

/**
 * Run a trace.
 *
 * @throws TraceFailed An effect is missing, differs, or is in another place, or random numbers are
 *   left over.
 */
export function run(trace: Trace): void {
  const numbers = [...(trace.random ?? [])];
  const recorded = new RecordedSession(options(trace.options ?? {}), () => {
    const number = numbers.shift();
    if (number === undefined) throw new TraceFailed('a random number too many');
    return number;
  });
  for (const [n, step] of trace.steps.entries()) {
    const got = canonical(recorded.handle(readEvent(step.in)).map(showEffect));
    const expected = canonical(step.out);
    if (got !== expected) {
      const text = `step ${n}, ${canonical(step.in)}`;
      throw new TraceFailed(`${text}\nexpected ${expected}\ngot      ${got}`);
    }
    const { slowed } = recorded.session.operations.publishes;
    if (slowed !== (step.slowed ?? slowed)) {
      throw new TraceFailed(`step ${n}: ${slowed} publishes were slowed`);
    }
  }
  if (numbers.length) throw new TraceFailed(`not drawn: ${numbers}`);
}

function options(given: Readonly<Record<string, unknown>>): SessionOptions {
  const named = Object.entries(given).map(([name, value]) => [
    name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    value,
  ]);
  const known: Partial<SessionOptions> = Object.fromEntries(named);
  return sessionOptions({ client: { name: 'trace' }, ...known });
}
