/**
 * The content of a timeline: when messages arrived, which were replayed, and which are missing.
 * Pure.
 */

import type { Entry } from './buffer.js';

/**
 * A message that arrives at least this many milliseconds after its publication counts as replayed.
 */
export const REPLAYED_AFTER = 1_000;

/** A mark. Messages whose marks would overlap share one. */
export interface Mark {
  readonly kind: 'live' | 'replayed' | 'gap';
  /** Distance from the left edge in pixels. */
  readonly x: number;
  /** Number of messages, or of missing messages for a gap; undefined for a gap of unknown size. */
  readonly count: number | undefined;
  /** Key of the first entry. */
  readonly key: number;
}

/** A label of the axis. */
export interface Label {
  readonly x: number;
  /** Unix ms. */
  readonly at: number;
}

/** The content of the timeline. */
export interface Timeline {
  readonly from: number;
  readonly to: number;
  readonly marks: readonly Mark[];
  readonly labels: readonly Label[];
  readonly live: number;
  readonly replayed: number;
  readonly gaps: number;
  /** The number of missing messages, without gaps of unknown size. */
  readonly missing: number;
}

/** Minimum distance between two marks, in pixels. */
const STEP = 4;
const STEPS = [
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * 1_000),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60_000),
  ...[1, 2, 3, 6, 12, 24].map((hours) => hours * 3_600_000),
];

/**
 * Compute the timeline of one topic.
 *
 * @param ahead How far the clock of the server is ahead of the clock of this machine, in ms.
 */
export function timelineOf(
  entries: readonly Entry[],
  width: number,
  to: number,
  span: number | undefined,
  ahead: number,
): Timeline | undefined {
  const first = entries[0];
  if (!first || width <= 0) return undefined;
  const end = Math.max(to, entries.at(-1)?.at ?? to);
  const from = span === undefined ? Math.min(first.at, end - 1_000) : end - span;
  const place = (at: number): number => ((at - from) / (end - from)) * width;
  const marks = new Map<string, Mark>();
  const sum = { live: 0, replayed: 0, gaps: 0, missing: 0 };
  for (const entry of entries) {
    if (entry.at < from) continue;
    const kind = kindOf(entry, ahead);
    const x = Math.min(width, Math.round(place(entry.at) / STEP) * STEP);
    const name = `${kind} ${x}`;
    const before = marks.get(name);
    const missed = entry.kind === 'gap' ? entry.gap.missed : 1;
    const count =
      missed === undefined || (before && before.count === undefined)
        ? undefined
        : missed + (before?.count ?? 0);
    marks.set(name, { kind, x, count, key: before?.key ?? entry.key });
    if (kind === 'gap') {
      sum.gaps += 1;
      sum.missing += missed ?? 0;
    } else sum[kind] += 1;
  }
  return { from, to: end, marks: [...marks.values()], labels: axis(from, end, width), ...sum };
}

/** The mark nearest to a position. */
export function nearest(marks: readonly Mark[], x: number): Mark | undefined {
  let found: Mark | undefined;
  for (const mark of marks) {
    if (!found || Math.abs(mark.x - x) < Math.abs(found.x - x)) found = mark;
  }
  return found;
}

function kindOf(entry: Entry, ahead: number): Mark['kind'] {
  if (entry.kind === 'gap') return 'gap';
  const { arrived, since = 0, at } = entry;
  // A message that was published before the connection was established was replayed, however recent
  // it is.
  if (arrived === undefined || at < since + ahead) return 'replayed';
  return arrived + ahead - at > REPLAYED_AFTER ? 'replayed' : 'live';
}

/** Labels at round times, as many as fit. */
function axis(from: number, to: number, width: number): Label[] {
  const most = Math.max(1, Math.floor(width / 90));
  const step = STEPS.find((each) => (to - from) / each <= most) ?? Math.ceil((to - from) / most);
  const labels: Label[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    labels.push({ at, x: ((at - from) / (to - from)) * width });
  }
  return labels;
}
