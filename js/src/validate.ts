/**
 * Checks of topics and patterns, for programs.
 *
 * No other module may import this one: a bundler would load at once what both an entry and a chunk
 * use.
 */

import { checkName } from './topic_names.js';

/**
 * Check the name of a topic to publish to, and return it.
 *
 * @throws InvalidTopic It is empty, over 255 bytes, has an empty segment, a wildcard or a character
 *   other than letters, digits, `_`, `-` and `.`; the message names the problem and its position.
 */
export function validateTopic(name: unknown): string {
  return checkName(name, 'topic');
}

/**
 * Check a pattern to subscribe to: a topic in which whole segments may be `*` or `**`.
 *
 * @throws InvalidTopic The errors of `validateTopic`, or `*` is only a part of a segment.
 */
export function validatePattern(pattern: unknown): string {
  return checkName(pattern, 'pattern');
}
