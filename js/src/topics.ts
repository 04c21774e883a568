/**
 * Names of topics, patterns of subscriptions, and matching.
 *
 * HIP-56 Topics, Wildcard Subscriptions, Security 8; H-149.
 */

/** Maximum bytes of a topic or pattern; all its characters are ASCII. */
export const MAX_TOPIC = 255;

const NAME = /^[\w-]+(?:\.[\w-]+)*$/;
const PATTERN = /^(?:[\w-]+|\*\*?)(?:\.(?:[\w-]+|\*\*?))*$/;

/** The last valid name: messages of one topic often follow each other. */
export let known = 'a';

/** Whether a value is the name of a topic. */
export function isTopic(name: unknown): name is string {
  if (name === known) return true;
  if (typeof name !== 'string' || name.length > MAX_TOPIC || !NAME.test(name)) return false;
  known = name;
  return true;
}

/** Whether a value is a pattern: a topic in which whole segments may be `*` or `**`. */
export function isPattern(name: unknown): name is string {
  return typeof name === 'string' && name.length <= MAX_TOPIC && PATTERN.test(name);
}

/** Whether a valid pattern contains a wildcard. */
export function isWildcard(pattern: string): boolean {
  return pattern.includes('*');
}

/** Whether a valid pattern matches a topic. */
export function matches(pattern: string, topic: string): boolean {
  // After a segment that differs, only the last `**` takes one more segment, so `**.**.**` cannot
  // cause exponential work. Most topics of a program already differ before the first wildcard.
  if (!topic.startsWith(pattern.split('*', 1)[0] as string)) return false;
  const wanted = pattern.split('.');
  const segments = topic.split('.');
  let place = 0;
  /** The place after the last `**`, and the first segment that it does not take. */
  let after = 0;
  let left = 0;
  for (let n = 0; n < segments.length; n += 1) {
    const one = wanted[place];
    if (one === '**') {
      place += 1;
      after = place;
      left = n + 1;
    } else if (one === '*' || one === segments[n]) {
      place += 1;
    } else if (after) {
      place = after;
      n = left;
      left += 1;
    } else {
      return false;
    }
  }
  return place === wanted.length;
}
