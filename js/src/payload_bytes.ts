/**
 * Converts bytes of byte protocols to JSON of HIP-56 and back, without loss.
 *
 * Bytes become the first of these that fits: an object or array whose compact encoding is exactly
 * these bytes, as that JSON; valid UTF-8, as a string; anything else, as `{"$base64": "…"}`.
 */

/** The only key of an object that represents bytes. */
export const BASE64 = '$base64';

/** Maximum nesting; deeper JSON becomes a string, because not every parser reads it. */
const DEPTH_MAX = 100;

const BASE64_TEXT = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** A lone surrogate, which UTF-8 cannot encode. */
const HALF = /\p{Surrogate}/u;

/** The same in JSON: `JSON.stringify` escapes it. Two backslashes are one character. */
const ESCAPED_HALF = /(?:^|[^\\])(?:\\\\)*\\ud[89a-f]/;

/**
 * The JSON value of bytes.
 *
 * @returns An object or array, a string, or `{"$base64": "…"}`.
 */
export function jsonOf(data: Uint8Array): unknown {
  const text = textOf(data);
  if (text === undefined) return { [BASE64]: encodeBase64(data) };
  return documentOf(text) ?? text;
}

/**
 * The bytes of a JSON value.
 *
 * @throws TypeError It cannot be written as JSON, or contains a lone surrogate.
 */
export function bytesOf(value: unknown): Uint8Array<ArrayBuffer> {
  const text = typeof value === 'string' ? value : (plain(value) ?? JSON.stringify(value));
  if (typeof text !== 'string') {
    if (text instanceof Uint8Array) return text;
    throw new TypeError('This is not a JSON value.');
  }
  const half = typeof value === 'string' ? HALF : ESCAPED_HALF;
  if (half.test(text)) throw new TypeError('A string has half of a surrogate pair.');
  return new TextEncoder().encode(text);
}

/** The text that is encoded as these bytes; undefined for other bytes. */
export function textOf(data: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return undefined;
  }
}

/** The object or array whose compact encoding is this text. */
function documentOf(text: string): object | undefined {
  if (!/^[{[]/.test(text) || depth(text) > DEPTH_MAX) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null) return undefined;
    if (ESCAPED_HALF.test(text) || plain(value)) return undefined;
    return JSON.stringify(value) === text ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The bytes of `{"$base64": "…"}`. */
function plain(value: unknown): Uint8Array<ArrayBuffer> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const [entry, ...others] = Object.entries(value);
  if (!entry || others.length || entry[0] !== BASE64) return undefined;
  const text: unknown = entry[1];
  if (typeof text !== 'string' || !BASE64_TEXT.test(text)) return undefined;
  return Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
}

function encodeBase64(data: Uint8Array): string {
  let text = '';
  for (const byte of data) text += String.fromCharCode(byte);
  return btoa(text);
}

/** Nesting depth of arrays and objects. */
function depth(text: string): number {
  let now = 0;
  let deepest = 0;
  for (const [part] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{[]|[\]}]/gs)) {
    if (part === '{' || part === '[') deepest = Math.max(deepest, ++now);
    else if (part === '}' || part === ']') now--;
  }
  return deepest;
}
