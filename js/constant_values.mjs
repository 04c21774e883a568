// Writes the values of constants instead of their names. The bundler does this only with numbers, in
// modules without imports.

/** A constant of one module that is a number or a text. */
const CONSTANT = /^const ([A-Z][A-Z_]*) = ([\d_]+|'[^'\\\n]*');$/gm;

/** An expression in a template, which may contain a template without expressions, or an object. */
const HOLE = '\\$\\{(?:[^`{}]|`[^`]*`|\\{[^{}]*\\})*\\}';

/** Text of the source that is not code; a slash divides after a value. */
const NOT_CODE = [
  String.raw`//[^\n]*`,
  String.raw`/\*[\s\S]*?\*/`,
  String.raw`(?<=(?:[(,=:[!&|?]|=>|\breturn)\s*)/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+/`,
  String.raw`'(?:\\.|[^'\\\n])*'`,
  String.raw`"(?:\\.|[^"\\\n])*"`,
  `\`(?:\\\\.|${HOLE}|[^\`\\\\])*\``,
];

/**
 * Return TypeScript with values instead of names, but not in comments, texts and patterns. Line
 * numbers don't change, for source maps.
 *
 * @param {string} source
 * @returns {string}
 */
export function withValues(source) {
  const values = new Map(
    [...source.matchAll(CONSTANT)].map(([, name, value]) => [name, `(${value})`]),
  );
  const names = [...values.keys()].map((name) => `(?<!const |\\.)\\b${name}\\b`);
  const found = new RegExp([...NOT_CODE, ...names].join('|'), 'g');
  const holes = new RegExp(`\\\\.|${HOLE}`, 'gs');
  const replaced = (text) =>
    text.replace(found, (one) => {
      if (!one.startsWith('`')) return values.get(one) ?? one;
      return one.replace(holes, (hole) =>
        hole.startsWith('$') ? `\${${replaced(hole.slice(2, -1))}}` : hole,
      );
    });
  return replaced(source);
}
