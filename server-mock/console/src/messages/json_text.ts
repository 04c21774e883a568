/** JSON as coloured text: indented, truncated, and split into tokens by kind. */

/** Maximum characters shown of a payload; copying is not limited. */
export const SHOWN_MAX = 60_000;

/** The kind of a token. */
export type PieceKind = 'key' | 'string' | 'number' | 'word' | 'mark';

/** A token of the text. */
export interface Piece {
  readonly kind: PieceKind;
  readonly text: string;
}

const TOKENS = /"(?:[^"\\]|\\.)*"(?=(\s*:)?)|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/g;

/** JSON with indentation. */
export function pretty(data: unknown): string {
  return JSON.stringify(data, null, 2) ?? 'null';
}

/** The tokens of a JSON text, in order. */
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

/** Whether a token is an integer that browsers read without its last digits. */
export function isRounded({ kind, text }: Piece): boolean {
  return kind === 'number' && /^-?\d+$/.test(text) && !Number.isSafeInteger(Number(text));
}

function kindOf(text: string, colon: string | undefined): PieceKind {
  if (text.startsWith('"')) return colon === undefined ? 'string' : 'key';
  return /^[tfn]/.test(text) ? 'word' : 'number';
}
