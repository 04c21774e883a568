/**
 * Text ↔ frames: sends one canonical shape, reads every plausible one.
 *
 * A canonical frame takes the short way, one generated guard. Whatever that refuses goes through
 * `readings`, which knows the other shapes that HIP-56 allows. Nothing here throws on anything that
 * came from the network, and no payload gets into a reason or a log.
 */

import {
  type ClientFrame,
  isServerFrame,
  type JsonObject,
  type ServerFrame,
} from '../generated/wire.js';
import { readEvent, readFrame } from './readings.js';

const SHOWN = 64;
const DEPTH_MAX = 200;
const LONE = /\\u[dD][89a-fA-F]/;
const ESCAPES = /\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u[dD][89a-fA-F]..|.)/gs;
const NUMBERS = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/gs;
const IN_JSON: ReadonlyMap<string, string> = new Map([
  ['NaN', 'null'],
  ['Infinity', '1e999'],
  ['-Infinity', '-1e999'],
]);

/** Something that is no frame in any reading. */
export class Malformed {
  /** @param reason Why, without any of its content. */
  constructor(readonly reason: string) {}
}

/** A well-formed frame of a type that this version does not know; to be ignored. */
export class Unknown {
  /** Tells it from a frame, which has a `type` too. */
  readonly known: false = false;

  /** @param type The type, at most 64 characters of it. */
  constructor(readonly type: string) {}
}

/**
 * Read one frame of a socket.
 *
 * Never throws. A payload's integers beyond 2^53 are rounded as all numbers of this language are,
 * NaN is read as null, an unpaired surrogate becomes U+FFFD, and nesting deeper than 200 levels is
 * malformed.
 */
export function decode(data: string | Uint8Array): ServerFrame | Malformed | Unknown {
  const value = parse(data);
  if (value instanceof Malformed || isServerFrame(value)) return value;
  const kind = value['type'];
  return finish(readFrame(value), typeof kind === 'string' ? kind : '');
}

/**
 * Read one server-sent event (HIP-56 SSE).
 *
 * @param event Its name; `message` where it had none.
 * @param data Its data: an envelope for `message`, `{topics, history}` for `subscribed`,
 *   `{topic, members}` for `presence`, or a whole frame.
 */
export function decodeEvent(
  event: string,
  data: string | Uint8Array,
): ServerFrame | Malformed | Unknown {
  const value = parse(data.length ? data : '{}');
  return value instanceof Malformed ? value : finish(readEvent(event, value), event);
}

/** Write one frame as compact JSON; what is undefined is left out. */
export function encode(frame: ClientFrame): string {
  return JSON.stringify(frame);
}

function finish(
  read: ServerFrame | string | undefined,
  kind: string,
): ServerFrame | Malformed | Unknown {
  if (read === undefined)
    return new Unknown(
      Array.from(kind.slice(0, 2 * SHOWN))
        .slice(0, SHOWN)
        .join(''),
    );
  return typeof read === 'string' ? new Malformed(read) : read;
}

function parse(data: string | Uint8Array): JsonObject | Malformed {
  let text: string;
  try {
    text = typeof data === 'string' ? data : new TextDecoder('utf-8', { fatal: true }).decode(data);
  } catch {
    return new Malformed('not UTF-8');
  }
  if (text.startsWith('\ufeff')) text = text.slice(1);
  if (LONE.test(text)) text = text.replace(ESCAPES, pairOrReplace);
  const value = json(text) ?? json(text.replace(NUMBERS, (found) => IN_JSON.get(found) ?? found));
  // The engine's own words would quote the text.
  if (!value) return new Malformed('not JSON');
  if (!isObject(value.json)) return new Malformed('not a JSON object');
  if (text.length > 2 * DEPTH_MAX && isDeep(value.json, DEPTH_MAX)) {
    return new Malformed('not JSON: nested too deeply');
  }
  return value.json;
}

function json(text: string): { readonly json: unknown } | undefined {
  try {
    return { json: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isDeep(value: unknown, left: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (left === 0) return true;
  for (const one of Object.values(value)) {
    if (typeof one === 'object' && isDeep(one, left - 1)) return true;
  }
  return false;
}

function pairOrReplace(found: string): string {
  return found.length === 6 && LONE.test(found) ? '\\ufffd' : found;
}
