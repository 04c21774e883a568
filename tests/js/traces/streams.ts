/**
 * Runs the traces of `spec/traces/streams/`: the given steps must cause exactly the given effects
 * and view.
 */

import { isDeepStrictEqual } from 'node:util';

import type { Part, Piece } from '../../../js/src/streams/parts.js';
import { bodyOf } from '../../../js/src/streams/pieces.js';
import { type Incoming, Reading } from '../../../js/src/streams/reading.js';
import { type EndKind, Writing } from '../../../js/src/streams/writing.js';
import { TraceFailed } from './runner.js';

interface Step {
  readonly in: { readonly [name: string]: unknown };
  readonly at: number;
}

/** A trace of a writer or of a reader. */
export interface StreamTrace {
  readonly writer?: {
    readonly stream: string;
    readonly epoch: number;
    readonly writer: string;
    readonly base?: number;
    readonly parts?: readonly Part[];
    readonly meta?: unknown;
    readonly window?: number;
  };
  readonly reader?: { readonly want?: string; readonly sender?: string };
  readonly steps: readonly Step[];
}

/**
 * Run a trace.
 *
 * @throws TraceFailed A step differs from the trace.
 */
export function runStream({ writer, reader, steps }: StreamTrace): void {
  const run = writer
    ? write.bind(null, new Writing(writer.stream, writer.epoch, writer.writer, writer))
    : read.bind(null, new Reading(reader?.want, reader?.sender));
  for (const [n, step] of steps.entries()) {
    const got = JSON.parse(JSON.stringify({ ...step, ...run(step) })) as unknown;
    if (!isDeepStrictEqual(got, step)) {
      const [one, other] = [step, got].map((value) => JSON.stringify(value));
      throw new TraceFailed(`step ${n}\nexpected ${one}\ngot      ${other}`);
    }
  }
}

function write(writing: Writing, step: Step): object {
  const { in: given, at } = step;
  const [[name, value]] = Object.entries(given) as [[string, never]];
  const list = value as unknown[];
  const steps: Record<string, () => unknown> = {
    open: () => writing.open(at),
    sent: () => writing.sent(at),
    tick: () => writing.tick(at),
    write: () => writing.write(value as Piece, at),
    finish: () => writing.finish(list[0] as EndKind, list[1] as never, at),
    failed: () =>
      writing.failed(list[0] as string, list[1] as boolean, at, list[2] as number | undefined),
    receive: () => writing.receive(list[0] as string, list[1], list[2] as string),
    inherit: () => writing.inherit(value as Incoming[]),
  };
  const out = steps[name]?.();
  const { due = null, full, ended } = writing;
  const more = Object.entries({ parts: writing.parts, stats: writing.stats });
  const asked = Object.fromEntries(more.filter(([name]) => name in step));
  return { out, due, full, ended, ...asked };
}

function read(reading: Reading, { in: { ...given }, at }: Step): object {
  const [[name, value]] = Object.entries(given) as [[string, unknown]];
  const steps: Record<string, () => unknown> = {
    begin: () => reading.begin(value as Incoming[], at),
    take: () => reading.take(value as Incoming, at),
    healed: () => reading.healed(value as Incoming[], at),
    lost: () => reading.lost(),
    tick: () => reading.tick(at),
  };
  const out = steps[name]?.();
  const { next, stale, due = null, ignored } = reading;
  return { out, view: { ...bodyOf(reading.parts), next, stale }, due, ignored };
}
