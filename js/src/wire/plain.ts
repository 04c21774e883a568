/** What may be published: plain JSON, measured before anything is sent (HIP-56 Security 5). */

/** Levels of arrays and objects in a payload. */
export const DEPTH_MAX = 100;

const ASCII = /^[ -~]*$/;
const UNPAIRED = /\p{Surrogate}/u;

/**
 * The bytes of the compact UTF-8 JSON of a value; NaN for what is not plain JSON.
 *
 * Plain JSON is: null, boolean, text without unpaired surrogates, finite number that fits in 64 bits
 * where it is written as an integer, array and plain object, up to 100 levels deep. A field that is
 * undefined is absent, as it is for `JSON.stringify`.
 */
export function sizeOf(value: unknown): number {
  return isPlain(value, 0) ? bytesOf(JSON.stringify(value)) : Number.NaN;
}

/** Bytes of a text in UTF-8, whose surrogates are in pairs. */
function bytesOf(text: string): number {
  let bytes = text.length;
  if (ASCII.test(text)) return bytes;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    // Each half of a pair stands for two of its four bytes.
    if (unit > 0x7f) bytes += unit > 0x7ff && (unit < 0xd800 || unit > 0xdfff) ? 2 : 1;
  }
  return bytes;
}

/** Whether a text has its surrogates in pairs, without which UTF-8 cannot carry it. */
export function isPaired(text: string): boolean {
  return !UNPAIRED.test(text);
}

/** Whether a number fits in 64 bits, or is written with an exponent, as no integer is. */
export function isSendable(value: number): boolean {
  return (
    (value >= -(2 ** 63) && value < 2 ** 64) || (Math.abs(value) >= 1e21 && Number.isFinite(value))
  );
}

/** A literal, or what JSON gave; also of another frame of the page. */
export function isRecord(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype === null) return true;
  const { toJSON } = value as { readonly toJSON?: unknown };
  return Object.getPrototypeOf(prototype) === null && typeof toJSON !== 'function';
}

function isPlain(value: unknown, depth: number): boolean {
  if (typeof value === 'string') return isPaired(value);
  if (typeof value === 'number') return isSendable(value);
  if (typeof value !== 'object' || !value) return value === null || typeof value === 'boolean';
  // Also ends the walk through a value that holds itself.
  if (depth >= DEPTH_MAX) return false;
  if (Array.isArray(value)) return [...value].every((item) => isPlain(item, depth + 1));
  if (!isRecord(value)) return false;
  for (const key of Object.keys(value)) {
    const item = (value as { readonly [key: string]: unknown })[key];
    if (item !== undefined && !(isPaired(key) && isPlain(item, depth + 1))) return false;
  }
  return true;
}
