/** Reads texts that are not canonical: almost JSON, and frames in other forms. */

import { isServerFrame, type ServerFrame } from '../generated/wire.js';
import { type Decoded, isDeep, Malformed, Unknown } from './decoded.js';
import { isObject, type JsonObject } from './guard.js';
import { readEvent, readFrame } from './readings.js';

const SHOWN = 64;
const LONE = /\\u[dD][89a-fA-F]/;
const ESCAPES = /\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u[dD][89a-fA-F]..|.)/gs;
const NUMBERS = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/gs;
const IN_JSON: ReadonlyMap<string, string> = new Map([
  ['NaN', 'null'],
  ['Infinity', '1e999'],
  ['-Infinity', '-1e999'],
]);

/** Parse one frame of a socket in any of its forms. Never throws. */
export function decodeLeniently(data: string | Uint8Array): Decoded {
  const value = parse(data);
  if (value instanceof Malformed || isServerFrame(value)) return value;
  const { type } = value;
  return finish(readFrame(value), typeof type === 'string' ? type : '');
}

/**
 * Parse one server-sent event (HIP-56 SSE). Never throws.
 *
 * @param event Its name; `message` if it has none.
 * @param data Its data: an envelope for `message`, `{topics, history}` for `subscribed`, `{topic,
 *   members}` for `presence`, or a whole frame.
 */
export function decodeEvent(event: string, data: string | Uint8Array): Decoded {
  const value = parse(data.length ? data : '{}');
  return value instanceof Malformed ? value : finish(readEvent(event, value), event);
}

function finish(read: ServerFrame | string | undefined, kind: string): Decoded {
  if (typeof read === 'string') return new Malformed(read);
  return (
    read ??
    new Unknown(
      Array.from(kind.slice(0, 2 * SHOWN))
        .slice(0, SHOWN)
        .join(''),
    )
  );
}

function parse(data: string | Uint8Array): JsonObject | Malformed {
  let text: string;
  try {
    text = typeof data === 'string' ? data : new TextDecoder('utf-8', { fatal: true }).decode(data);
  } catch {
    return new Malformed('not UTF-8');
  }
  const paired = text.replace(/^\ufeff/, '').replace(ESCAPES, pairOrReplace);
  const value =
    json(paired) ?? json(paired.replace(NUMBERS, (found) => IN_JSON.get(found) ?? found));
  // Don't add the message of the engine: it would quote the text.
  if (!value) return new Malformed('not JSON');
  if (!isObject(value.json)) return new Malformed('not a JSON object');
  return isDeep(value.json) ? new Malformed('not JSON: nested too deeply') : value.json;
}

function json(text: string): { readonly json: unknown } | undefined {
  try {
    return { json: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

function pairOrReplace(found: string): string {
  return found.length === 6 && LONE.test(found) ? '\\ufffd' : found;
}
