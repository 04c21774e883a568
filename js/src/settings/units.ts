/** The warning that times are probably in seconds; only for the development build. */

import { CLIENT } from '../generated/defaults.js';
import type { PubSubOptions } from './options.js';

const TIMES = [
  'fetchTimeout',
  'openTimeout',
  'operationTimeout',
  'closeTimeout',
  'pingInterval',
  'pongTimeout',
  'suspendAfter',
  'refreshMargin',
  'fallbackAfter',
  'upgradeAfter',
] as const;

/** Maximum first delay of a program that counts seconds; in milliseconds, tests have longer ones. */
const BASE_MAX = 5;

/** Options that a warning has named: each is named once. */
const warned = new Set<string>();

/**
 * Log the times of a client that are probably in seconds.
 *
 * As seconds, they are between a fifth and three times of their defaults; tests rarely use such
 * milliseconds. A time of a second or more shows that the program counts milliseconds: then nothing
 * is logged.
 */
export function warnOfSeconds({ retry = {}, logger = console, ...given }: PubSubOptions): void {
  const { base = BASE_MAX, cap = 0 } = retry;
  const found: (readonly [name: string, time: number])[] = [];
  for (const [name, time, usual] of [
    ...TIMES.map((name) => [name, given[name] ?? 0, CLIENT[name]] as const),
    ['retry.cap', base > BASE_MAX ? 0 : cap, CLIENT.retryCap] as const,
  ]) {
    if (time >= 1_000) return;
    if (time * 5_000 >= usual && time * 1_000 <= usual * 3) found.push([name, time]);
  }
  const news = found.filter(([name]) => !warned.has(name));
  if (!news[0]) return;
  for (const [name] of news) warned.add(name);
  const [, time] = news[0];
  const named = news.map(([name, ms]) => `\`${name}\` is ${ms} ms`);
  logger.warn(
    `${named.join(', and ')}. Times are in milliseconds: for ${time} s, pass ${time * 1_000}.`,
  );
}
