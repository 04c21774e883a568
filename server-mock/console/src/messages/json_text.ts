/** JSON as coloured text: pretty, bounded, in pieces by kind. */

/** Characters that are shown of one payload; the copy has all of them. */
export const SHOWN_MAX = 60_000;

/** What a piece is. */
export type PieceKind = 'key' | 'string' | 'number' | 'word' | 'mark';

/** A piece of text of one kind. */
export interface Piece {
  readonly kind: PieceKind;
  readonly text: string;
}

const TOKENS = /"(?:[^"\\]|\\.)*"(?=(\s*:)?)|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/g;

/** JSON over several lines. */
export function pretty(data: unknown): string {
  return JSON.stringify(data, null, 2) ?? 'null';
}

/** The pieces of a JSON text, in order. */
export function pieces(json: string): Piece[] {
  const found: Piece[] = [];
  let at = 0;
  for (const match of json.matchAll(TOKENS)) {
    if (match.index > at) found.push({ kind: 'mark', text: json.slice(at, match.index) });
    found.push({ kind: kindOf(match[0], match[1]), text: match[0] });
    at = match.index + match[0].length;
  }
  if (at < json.length) found.push({ kind: 'mark', text: json.slice(at) });
  return found;
}

function kindOf(text: string, colon: string | undefined): PieceKind {
  if (text.startsWith('"')) return colon === undefined ? 'string' : 'key';
  return /^[tfn]/.test(text) ? 'word' : 'number';
}
