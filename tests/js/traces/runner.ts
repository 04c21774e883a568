/**
 * Runs the traces of `spec/traces/`: given events, exactly these effects.
 *
 * The same files are run in each language; a runner needs a JSON parser and a mapping, no clock and
 * no socket.
 */

import { type SessionOptions, sessionOptions } from '../../../js/src/settings/session.js';
import { load } from '../files.js';
import { RecordedSession } from './events.js';
import { canonical, readEvent, type StepEvent, showEffect } from './mapping.js';

/** The session did something else than the trace says. */
export class TraceFailed extends Error {}

export interface Trace {
  readonly start?: string;
  readonly random?: readonly number[];
  readonly options?: Readonly<Record<string, unknown>>;
  readonly steps: readonly { readonly in: StepEvent; readonly out: readonly unknown[] }[];
}

/** A trace, after the steps and with the random numbers of the one that it starts from. */
export function loadTrace(...path: string[]): Trace {
  const trace = load<Trace>('traces', ...path);
  if (!trace.start) return trace;
  const start = loadTrace(`${trace.start}.json`);
  return {
    random: [...(start.random ?? []), ...(trace.random ?? [])],
    options: { ...start.options, ...trace.options },
    steps: [...start.steps, ...trace.steps],
  };
}

/**
 * Run a trace.
 *
 * @throws TraceFailed An effect is missing, another, or at another place; or numbers are left over.
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
      const said = `step ${n}, ${canonical(step.in)}`;
      throw new TraceFailed(`${said}\nexpected ${expected}\ngot      ${got}`);
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
  return sessionOptions({ clientName: 'trace', clientLang: undefined, ...known });
}
