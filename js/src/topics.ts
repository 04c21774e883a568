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

/**
 * Whether a valid pattern matches a topic.
 *
 * It reads the topic once and tracks the set of positions in the pattern that it can have reached.
 * A position is in the set at most once, so `**.**.**` cannot cause exponential work.
 */
export function matches(pattern: string, topic: string): boolean {
  const wanted = pattern.split('.');
  let places = new Set([0]);
  for (const segment of topic.split('.')) {
    const following = new Set<number>();
    for (const place of places) {
      const one = wanted[place];
      if (one === '**') following.add(place);
      if (one === segment || one === '*' || one === '**') following.add(place + 1);
    }
    places = following;
  }
  return places.has(wanted.length);
}
