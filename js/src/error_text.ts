/** The texts of errors. */

import { DEVELOPMENT } from './build.js';
import { CODES } from './generated/errors.js';

/** Maximum characters of a server's text in an error. */
const LONGEST = 2_000;

/** The message, the remedy, and where the code is described. */
export function explain(message: string, remedy: string, code: string): string {
  if (!remedy) return message;
  const text = `${message}${/[.!?]$/.test(message) ? '' : '.'} ${remedy}`;
  return DEVELOPMENT && CODES.has(code) ? `${text} See ${CODES.get(code)?.docs}` : text;
}

/** Cut by code points, as every SDK does. */
export function shorten(text: string, most: number = LONGEST): string {
  const characters = [...text];
  return characters.length > most ? `${characters.slice(0, most).join('')}…` : text;
}
