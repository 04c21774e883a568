/** Rates of events: samples of the last minute. */

/** Number of samples. */
export const SAMPLES = 30;
const RECENT = 3;

/** Counts by interval, the newest last. */
export class RateSeries {
  readonly perSecond: number[] = new Array<number>(SAMPLES).fill(0);
  private _recent = 0;

  /** Add the count of an interval. */
  push(count: number, seconds: number): void {
    this.perSecond.push(seconds > 0 ? Math.max(0, count) / seconds : 0);
    this.perSecond.shift();
    const recent = this.perSecond.slice(-RECENT);
    this._recent = recent.reduce((sum, each) => sum + each, 0) / recent.length;
  }

  /** The recent rate per second. */
  get recent(): number {
    return this._recent;
  }

  /** Whether all samples are 0. */
  get quiet(): boolean {
    return this.perSecond.every((each) => each === 0);
  }
}

/**
 * Number of messages between two positions of a log.
 *
 * A restarted log begins at about the time in microseconds, so this jump counts as 0.
 */
export function messagesBetween(before: number | undefined, now: number | undefined): number {
  if (before === undefined || now === undefined || now < before) return 0;
  const count = now - before;
  return count < 10_000_000 ? count : 0;
}

/** The points of a line through the samples, in a box of this size. */
export function linePoints(values: readonly number[], width: number, height: number): string {
  const most = Math.max(1, ...values);
  const step = width / Math.max(1, values.length - 1);
  return values
    .map((value, n) => `${round(n * step)},${round(height - 1 - (value / most) * (height - 2))}`)
    .join(' ');
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
