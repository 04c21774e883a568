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

/**
 * Whether a browser publishes a token with other digits than its own. All integers above 2^53
 * count, and numbers above it with a fraction or an exponent if their digits change.
 */
export function isRounded({ kind, text }: Piece): boolean {
  if (kind !== 'number' || !isLarge(Number(text))) return false;
  return /^-?\d+$/.test(text) || digits(text) !== digits(String(Number(text)));
}

/** Whether data contains a number above 2^53; a browser does not know which digits it had. */
export function hasLarge(data: unknown): boolean {
  const waiting = [data];
  // Not a recursion, because the data can have more levels than the stack.
  while (waiting.length) {
    const value = waiting.pop();
    if (typeof value === 'number' && isLarge(value)) return true;
    if (typeof value === 'object' && value !== null) {
      for (const each of Object.values(value)) waiting.push(each);
    }
  }
  return false;
}

function isLarge(value: number): boolean {
  return Math.abs(value) > Number.MAX_SAFE_INTEGER;
}

/** The digits of a number, without its sign, its exponent and the zeros at both ends. */
function digits(text: string): string {
  return text
    .replace(/[eE].*/, '')
    .replace(/[-.]/g, '')
    .replace(/^0+|0+$/g, '');
}

function kindOf(text: string, colon: string | undefined): PieceKind {
  if (text.startsWith('"')) return colon === undefined ? 'string' : 'key';
  return /^[tfn]/.test(text) ? 'word' : 'number';
}
