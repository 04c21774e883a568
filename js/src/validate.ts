/**
 * Names of topics, checked for programs.
 *
 * Nothing else imports this module: what an entry exports and a chunk uses, a bundler would load at
 * once.
 */

import { checkName } from './topic_names.js';

/**
 * Check the name of a topic, as one publishes to; returns it.
 *
 * @throws InvalidTopic It is empty, over 255 bytes, has an empty segment, a wildcard or a character
 *   other than letters, digits, `_`, `-` and `.`; the message names it and its place.
 */
export function validateTopic(name: unknown): string {
  return checkName(name, 'topic');
}

/**
 * Check a pattern, as one subscribes to: a topic in which whole segments may be `*` or `**`.
 *
 * @throws InvalidTopic As for `validateTopic`, or `*` is a part of a segment.
 */
export function validatePattern(pattern: unknown): string {
  return checkName(pattern, 'pattern');
}
