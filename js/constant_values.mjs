// Writes the values of constants instead of their names. The bundler does this only with numbers, in
// modules without imports.

import { transform } from 'esbuild';

/** A constant of one module that is a number or a text. */
const CONSTANT = /^const ([A-Z][A-Z_]*) = (?:([\d_]+)|'([^'\\\n]*)');$/gm;

/**
 * Return the JavaScript of a TypeScript module without its constants, with a source map.
 *
 * @param {string} source
 * @param {string} path For the source map.
 * @param {string} tsconfigRaw The options of the compiler, as JSON.
 * @returns {Promise<string>}
 */
export async function withValues(source, path, tsconfigRaw) {
  const define = {};
  const rest = source.replace(CONSTANT, (_, name, number, text) => {
    define[name] = JSON.stringify(text ?? Number(number.replaceAll('_', '')));
    return '';
  });
  const { code } = await transform(rest, {
    define,
    loader: 'ts',
    sourcefile: path,
    sourcemap: 'inline',
    sourcesContent: false,
    target: 'es2022',
    tsconfigRaw,
  });
  return code;
}
