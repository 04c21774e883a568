/** What failures of HTTP mean for a connection. */

const CLOSE_CODES: ReadonlyMap<number, number> = new Map([
  [401, 4401],
  [403, 4403],
  [413, 4413],
  [429, 4429],
  [503, 1013],
]);
const WAIT_MAX = 3_600_000;

/** The status of an answer; a redirect that is not followed has one, which pages are not told. */
export function statusOf({ status }: Response): number {
  return status || 302;
}

/** The close code that an HTTP status stands for; undefined where it says nothing about identity. */
export function closeCodeFor(status: number): number | undefined {
  return CLOSE_CODES.get(status);
}

/**
 * Read `Retry-After` (RFC 9110, 10.2.3): seconds or a date.
 *
 * @param value The header, if there was one.
 * @param wall Unix milliseconds to count from.
 * @returns Milliseconds from now, at most an hour; undefined for what is neither.
 */
export function retryAfterOf(value: string | null, wall: number): number | undefined {
  const text = value?.trim();
  if (!text) return undefined;
  const wait = /^[\d.]+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - wall;
  return Number.isNaN(wait) ? undefined : Math.min(Math.max(wait, 0), WAIT_MAX);
}
