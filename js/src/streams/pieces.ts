/** Operations on pieces and parts, for writers and readers. */

import type { JsonObject } from '../generated/wire.js';
import { isObject } from '../wire/guard.js';
import { copyOf, isString, type Part, type Piece, textOf } from './parts.js';

/** Whether a value, from the wire or from a program, is a piece. */
export function isPiece(value: unknown): value is Piece {
  if (typeof value === 'string') return true;
  if (!isObject(value)) return false;
  const { type, text = '' } = value;
  return typeof text === 'string' && (typeof type === 'string' || 'text' in value);
}

/** The text of a piece that continues something; undefined for a part that begins. */
export const textOfPiece = (piece: Piece): string | undefined =>
  typeof piece === 'string' ? piece : 'type' in piece ? undefined : piece.text;

/** Apply a piece to the parts of an answer. */
export function grow(parts: Part[], piece: Piece): void {
  const last = parts.at(-1);
  const text = textOfPiece(piece);
  if (text === undefined) parts.push({ ...(piece as Part) });
  else if (last && (text !== piece || last.type === 'text')) last.text = (last.text ?? '') + text;
  else parts.push({ type: 'text', text });
}

/** The fields of a frame for an answer: `text` if it is only text, otherwise `parts`. */
export const bodyOf = (parts: readonly Part[]): JsonObject =>
  parts.every((part, n) => !n && part.type === 'text' && Object.keys(part).length === 2)
    ? { text: textOf(parts) }
    : { parts: copyOf(parts) };

/** The parts in a frame; undefined if it carries no answer. */
export function partsOf({ parts, content, text = content }: JsonObject): Part[] | undefined {
  if (
    Array.isArray(parts) &&
    parts.every((part) => isPiece(part) && isObject(part) && isString((part as JsonObject)['type']))
  )
    return copyOf(parts as unknown as Part[]);
  return isString(text) ? (text ? [{ type: 'text', text }] : []) : undefined;
}

/** JSON with the fields of each object in alphabetical order. */
export const sorted = (value: unknown): string =>
  JSON.stringify(value, (_, given: unknown) =>
    isObject(given)
      ? Object.fromEntries(
          Object.keys(given)
            .sort()
            .map((key) => [key, given[key]]),
        )
      : given,
  );

/**
 * Make text well-formed: half a surrogate pair at the end is kept for the next text.
 *
 * @returns The text, with U+FFFD for any other half, and the kept half.
 */
export function splitPair(text: string): [whole: string, held: string] {
  const [held = ''] = /[\ud800-\udbff]?$/.exec(text) ?? [];
  return [text.slice(0, text.length - held.length).replace(/\p{Cs}/gu, '\ufffd'), held];
}
