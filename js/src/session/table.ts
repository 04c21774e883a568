/** The rows of the lifecycle table, read from the text that is generated from `spec/lifecycle.yaml`. */

import {
  type Action,
  type Guard,
  type State,
  TABLE,
  type TimerStep,
} from '../generated/lifecycle.js';

/** One way out of a state on an event; the first row whose guards all hold fires. */
export interface Row {
  readonly guards: readonly Guard[];
  readonly to: State;
  readonly actions: readonly (Action | TimerStep)[];
}

/** Rows by `state event`. */
export const ROWS: ReadonlyMap<string, readonly Row[]> = new Map(
  Object.entries(TABLE).flatMap(([state, text]) =>
    [...text.matchAll(/(\S+) (.+)/g)].map(([, event, rows = '']) => [
      `${state} ${event}`,
      rows.split('|').map((row) => readRow(row, state as State)),
    ]),
  ),
);

function readRow(text: string, state: State): Row {
  const [guards, to, actions] = text.split('>');
  return { guards: names(guards), to: (to || state) as State, actions: names(actions) };
}

function names<Name>(text = ''): Name[] {
  return text.split(',').filter(Boolean) as Name[];
}
