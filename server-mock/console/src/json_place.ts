/**
 * Finds the position at which a text stops being JSON. Browsers report it in different words, or
 * not at all.
 */

/** A syntax error in a JSON text. */
export interface JsonSlip {
  /** Line, from 1. */
  readonly line: number;
  /** Column, from 1. */
  readonly column: number;
  /** The expected syntax. */
  readonly expected: string;
}

const SPACE = /[ \t\n\r]*/y;
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON refuses them inside of strings
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SCALAR = /(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.])/y;

/** The first error; undefined if the text is JSON. */
export function findSlip(text: string): JsonSlip | undefined {
  const open: ('[' | '{')[] = [];
  let at = 0;
  const take = (form: RegExp): boolean => {
    form.lastIndex = at;
    const found = form.exec(text);
    if (found) at += found[0].length;
    return found !== null;
  };
  const is = (sign: string): boolean => {
    take(SPACE);
    if (text[at] !== sign) return false;
    at += 1;
    return true;
  };
  const key = (): string | undefined => {
    take(SPACE);
    if (!take(STRING)) return 'a name in double quotes';
    return is(':') ? undefined : 'a colon';
  };
  const value = (): string | undefined => {
    while (true) {
      if (is('{')) {
        if (is('}')) return undefined;
        open.push('{');
        const missing = key();
        if (missing) return missing;
      } else if (is('[')) {
        if (is(']')) return undefined;
        open.push('[');
      } else return take(STRING) || take(SCALAR) ? undefined : 'a value';
    }
  };
  const rest = (): string | undefined => {
    for (let inside = open.at(-1); inside; inside = open.at(-1)) {
      if (is(inside === '{' ? '}' : ']')) open.pop();
      else if (!is(',')) return inside === '{' ? 'a comma or }' : 'a comma or ]';
      else {
        const missing = (inside === '{' ? key() : undefined) ?? value();
        if (missing) return missing;
      }
    }
    take(SPACE);
    return at === text.length ? undefined : 'the end of the text';
  };
  const expected = value() ?? rest();
  if (expected === undefined) return undefined;
  const lines = text.slice(0, at).split('\n');
  return { line: lines.length, column: (lines.at(-1)?.length ?? 0) + 1, expected };
}
