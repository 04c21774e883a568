/**
 * Reads texts that are not canonical: almost JSON, and every plausible form of a HIP-56 frame, which
 * it converts to the canonical one.
 *
 * One JSON object cannot hold both the `type` of a frame and the `type` of the message in it, but
 * HIP-56 requires both. So peers may send a message nested under `message`, `envelope` or
 * `payload`; flat with the application's type in `message_type`, `msg_type` or `event`; flat with
 * that type instead of the frame's; or flat without it. Presence events arrive bare or as messages,
 * error codes as numbers, members with `id` instead of `client_id`, and messages without a
 * timestamp.
 *
 * To save the rest, an invalid optional field is dropped, and so is an invalid member or history
 * entry of a list. Only a frame that makes no sense is rejected.
 */

import { DEVELOPMENT } from '../build.js';
import { compact } from '../compact.js';
import {
  type Envelope,
  isEnvelope,
  isPresenceMember,
  isSender,
  isServerFrame,
  type PresenceMember,
  SERVER_FRAMES,
  type Sender,
  type ServerFrame,
} from '../generated/wire.js';
import { type Decoded, isDeep, Malformed, Unknown } from './decoded.js';
import { type Guard, isCount, isObject, type JsonObject } from './guard.js';
import { messageId } from './ids.js';

const PRESENCE: readonly unknown[] = ['presence.join', 'presence.leave', 'presence.update'];
const NESTS: readonly string[] = ['message', 'envelope', 'payload'];
const APP_TYPES: readonly string[] = ['message_type', 'msg_type', 'event'];
const NOT_DATA: readonly string[] = [
  'type',
  'topic',
  'id',
  'timestamp',
  'sender',
  'seq',
  'ttl',
  'ref',
];
/** Defaults of required fields that some peers omit, by type of frame. */
const USUAL: Readonly<Record<string, JsonObject>> = {
  'auth.ok': { client_id: '' },
  'auth.error': { code: 'unauthenticated', message: '' },
  error: { code: 'internal', message: '' },
  subscribed: { topics: [] },
  unsubscribed: { topics: [] },
};

/** Maximum characters of an unknown type. */
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

/**
 * Read a parsed frame. Returns the frame, the reason why it is malformed, or undefined for an
 * unknown type.
 */
function readFrame(fields: JsonObject): ServerFrame | string | undefined {
  const { type: kind = 'type' in fields ? null : 'message' } = fields;
  if (typeof kind !== 'string') return '`type` is not a string';
  if (kind === 'message') return readMessage(appType(fields), fields);
  if (PRESENCE.includes(kind)) return readPresence(kind, fields);
  if (SERVER_FRAMES.has(kind) && !(kind === 'error' && 'data' in fields && isFlat(fields))) {
    return readControl(kind, fields);
  }
  return isFlat(fields) ? readMessage(kind, fields) : undefined;
}

/**
 * Read a parsed server-sent event; returns the same as `readFrame`.
 *
 * On an event stream, the name of the event is the type of the frame, so `type` is the
 * application's type. `message` carries a bare envelope.
 */
function readEvent(event: string, fields: JsonObject): ServerFrame | string | undefined {
  const { type: kind } = fields;
  if (event === 'message') {
    if (nested(fields) || (kind === 'message' && appType(fields) !== 'message')) {
      return readFrame(fields);
    }
    return readMessage(typeof kind === 'string' ? kind : 'message', fields);
  }
  if (event === 'presence' || event === 'presence.snapshot') {
    if ('members' in fields) return readControl('presence.snapshot', fields);
    return PRESENCE.includes(kind) ? readPresence(String(kind), fields) : undefined;
  }
  return readFrame({ ...fields, type: event });
}

/**
 * Read a message without a frame around it, as in REST and `subscribed.history`. Returns the
 * message, or the reason why it is malformed.
 */
export function readEnvelope(value: unknown): Envelope | string {
  if (isEnvelope(value)) return value;
  if (!isObject(value)) return 'the message is not an object';
  const { type: kind } = value;
  return envelope(typeof kind === 'string' ? kind : appType(value), value);
}

/** Read one presence member; returns undefined if it has no client id. */
export function readMember(value: unknown): PresenceMember | undefined {
  const fields = object(value);
  const { client_id, id, user_id, name, joined_at, last_seen } = fields ?? {};
  const who = text(client_id) ?? text(id) ?? text(user_id);
  if (who === undefined) return undefined;
  const user = text(user_id) ?? who;
  const read = validate(isPresenceMember, {
    ...fields,
    client_id: who,
    user_id: user,
    name: text(name) ?? user,
    joined_at: whole(joined_at) ?? 0,
    last_seen: whole(last_seen) ?? 0,
  });
  return typeof read === 'string' ? undefined : read;
}

function readMessage(kind: string, fields: JsonObject): ServerFrame | string {
  const inside = nested(fields);
  const { type = kind } = inside ?? {};
  const message = inside
    ? envelope(typeof type === 'string' ? type : kind, { ...without(fields, NESTS), ...inside })
    : envelope(kind, fields);
  return typeof message === 'string' ? message : { type: 'message', message };
}

function readPresence(kind: string, fields: JsonObject): ServerFrame | string {
  if (nested(fields) || 'data' in fields) return readMessage(kind, fields);
  const data = object(fields['member']) ?? without(fields, NOT_DATA);
  return readMessage(kind, { ...fields, data });
}

function readControl(kind: string, fields: JsonObject): ServerFrame | string {
  const full: Record<string, unknown> = { ...USUAL[kind], ...fields, type: kind };
  for (const name of ['topics', 'truncated', 'reset', 'features']) {
    if (typeof full[name] === 'string') full[name] = [full[name]];
  }
  if (Number.isInteger(full['ref'])) full['ref'] = String(full['ref']);
  if (kind.endsWith('error')) {
    const { code = fields['error'] } = fields;
    if (typeof code === 'string' || Number.isInteger(code)) full['code'] = String(code);
    else full['code'] = USUAL[kind]?.['code'];
  }
  // These readers accept more than the guard does, so the guard does not check their lists.
  const { history, members } = full;
  const lists: Record<string, unknown> = {};
  if (Array.isArray(history)) {
    full['history'] = [];
    lists['history'] = history.map(readEnvelope).filter((entry) => typeof entry !== 'string');
  }
  if (kind === 'presence.snapshot' && Array.isArray(members)) {
    full['members'] = [];
    lists['members'] = members.map(readMember).filter((member) => member !== undefined);
  }
  const read = validate(SERVER_FRAMES.get(kind) as Guard<ServerFrame>, full);
  if (typeof read !== 'string') return { ...read, ...lists };
  if (!DEVELOPMENT) return `bad ${kind}.${read}`;
  const name = kind.replace(/(?:^|\.)(.)/g, (_, first: string) => first.toUpperCase());
  return `${name}Frame: \`${read}\` is missing or of a wrong type`;
}

/**
 * Read field by field: convert values, and drop invalid optional fields. Returns the result, or the
 * name of the first invalid required field in alphabetical order.
 */
function validate<T>({ fields }: Guard<T>, given: JsonObject): T | string {
  const read: Record<string, unknown> = { ...given };
  const missing: string[] = [];
  for (const { name, optional, test } of fields) {
    const fitting = forms(given[name]).find(test);
    if (fitting !== undefined) read[name] = fitting;
    else delete read[name];
    if (fitting === undefined && !optional) missing.push(name);
  }
  return missing.sort()[0] ?? (read as T);
}

/**
 * The values that a value may represent: itself, the number or boolean in a text, the boolean of 0
 * or 1, the number of a boolean, an object without nulls.
 */
function forms(value: unknown): unknown[] {
  if (value === 'true' || value === 'false') return [value, value === 'true'];
  if (typeof value === 'string') return [value, digits(value)];
  if (value === 0 || value === 1) return [value, value === 1];
  if (typeof value === 'boolean') return [value, Number(value)];
  if (typeof value !== 'object' || value === null) return [value];
  const bare = withoutNulls(value);
  return [value, bare, withNumbers(bare)];
}

/** The value without null fields, which count as absent (spec/README.md). */
export function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (!isObject(value)) return value;
  const entries = Object.entries(value).filter(([, one]) => one !== null);
  return Object.fromEntries(entries.map(([key, one]) => [key, withoutNulls(one)]));
}

function withNumbers(value: unknown): unknown {
  if (!isObject(value)) return value;
  const number = (one: unknown): unknown => (typeof one === 'string' ? digits(one) : undefined);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, number(one) ?? one]));
}

function envelope(type: string, fields: JsonObject): Envelope | string {
  const { id, data, timestamp, ttl, seq, meta } = fields;
  const topic = text(fields['topic']);
  if (topic === undefined) return 'the message has no topic';
  if (data === undefined) return 'the message has no data';
  return compact<Envelope>({
    ...without(fields, APP_TYPES),
    // Without an id, a repeat cannot be recognized. Delivering it twice is better than losing a
    // message.
    id: text(id) ?? (Number.isInteger(id) ? String(id) : messageId()),
    topic,
    type,
    data,
    // The local clock must not move a position on the server's clock; 0 does not move any.
    timestamp: whole(timestamp) ?? 0,
    sender: sender(fields['sender']),
    ttl: whole(ttl),
    seq: whole(seq),
    meta: object(meta),
  });
}

function sender(value: unknown): Sender | undefined {
  if (typeof value === 'string') return { type: '', id: value };
  const full = { type: '', ...object(value) };
  return isSender(full) ? full : undefined;
}

function nested(fields: JsonObject): JsonObject | undefined {
  return NESTS.map((name) => object(fields[name])).find(
    (inner) => inner && 'data' in inner && ['topic', 'id', 'type'].some((name) => name in inner),
  );
}

function isFlat(fields: JsonObject): boolean {
  return 'topic' in fields && 'id' in fields;
}

function object(value: unknown): JsonObject | undefined {
  return isObject(value) ? value : undefined;
}

function appType(fields: JsonObject): string {
  return text(APP_TYPES.map((name) => fields[name]).find(text)) ?? 'message';
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value ? value : undefined;
}

function digits(value: string): number | undefined {
  return /^\d{1,20}$/.test(value) ? Number(value) : undefined;
}

/** A count that may have arrived as a float or in digits; undefined for anything else. */
function whole(value: unknown): number | undefined {
  const number = typeof value === 'string' ? digits(value) : value;
  const floor = typeof number === 'number' ? Math.floor(number) : undefined;
  return isCount(floor) ? floor : undefined;
}

function without(fields: JsonObject, names: readonly string[]): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([key]) => !names.includes(key)));
}
