/**
 * Checks that a payload is plain JSON, and measures it before anything is sent (HIP-56 Security 5).
 */

/** Maximum nesting of arrays and objects in a payload. */
export const DEPTH_MAX = 100;

const ASCII = /^[ -~]*$/;
const UNPAIRED = /\p{Surrogate}/u;

/**
 * The bytes of the compact UTF-8 JSON of a value; NaN if it is not plain JSON.
 *
 * Plain JSON is: null, booleans, text without unpaired surrogates, finite numbers that fit in 64
 * bits if they are written as integers, arrays and plain objects, up to 100 levels deep. An
 * undefined field is absent, as with `JSON.stringify`.
 */
export function sizeOf(value: unknown): number {
  return isPlain(value, 0) ? bytesOf(JSON.stringify(value)) : NaN;
}

/** The UTF-8 bytes of a text without unpaired surrogates. */
function bytesOf(text: string): number {
  return ASCII.test(text) ? text.length : new TextEncoder().encode(text).length;
}

/** Whether a text has no unpaired surrogates, which UTF-8 cannot encode. */
export function isPaired(text: string): boolean {
  return !UNPAIRED.test(text);
}

/** Whether a number fits in 64 bits, or is so large that JSON writes it with an exponent. */
export function isSendable(value: number): boolean {
  return (
    (value >= -(2 ** 63) && value < 2 ** 64) || (Math.abs(value) >= 1e21 && Number.isFinite(value))
  );
}

/**
 * Whether it is an object literal or an object parsed from JSON, also in another frame of the page.
 */
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
  // This also stops at a value that contains itself.
  if (depth >= DEPTH_MAX) return false;
  if (Array.isArray(value)) return [...value].every((item) => isPlain(item, depth + 1));
  if (!isRecord(value)) return false;
  for (const key of Object.keys(value)) {
    const item = (value as { readonly [key: string]: unknown })[key];
    if (item !== undefined && !(isPaired(key) && isPlain(item, depth + 1))) return false;
  }
  return true;
}
