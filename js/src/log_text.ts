/**
 * Text of servers and other clients, as logs show it.
 *
 * A control character could change a terminal, and a line end could forge a line of a log.
 */

import { shorten } from './error_text.js';

/** Maximum characters of such a text in a log. */
const LOGGED_MAX = 300;

/** Control characters, line ends and changes of direction. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: it is control characters that are escaped
const ESCAPED = /[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** The text for a log: on one line, and bounded. */
export function logText(text: string): string {
  const shown = text.replace(ESCAPED, (found) => {
    const code = found.charCodeAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, '0')}` : `\\x${code.padStart(2, '0')}`;
  });
  return shorten(shown, LOGGED_MAX);
}
