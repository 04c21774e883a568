/**
 * Every plausible reading of a HIP-56 frame, put into the canonical shape.
 *
 * One JSON object cannot hold both the `type` of a frame and the `type` of the message in it, and
 * HIP-56 asks for both. So peers may send a message nested under `message`, `envelope` or `payload`,
 * or flat with the application's type in `message_type`, `msg_type` or `event`, or flat with that
 * type in the place of the frame's, or flat without any. Presence events come bare or as messages,
 * error codes as numbers, members with `id` instead of `client_id`, and messages without a
 * timestamp.
 *
 * An odd optional field is left out, an odd member or history entry is left out of its list, so that
 * the rest is not lost with it; only what makes no sense at all is refused.
 */

import {
  type Envelope,
  isEnvelope,
  isPresenceMember,
  isSender,
  type PresenceMember,
  SERVER_FRAMES,
  type Sender,
  type ServerFrame,
} from '../generated/wire.js';
import { compact } from './compact.js';
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
/** Required fields that some peers leave out, by type of frame. */
const USUAL: Readonly<Record<string, JsonObject>> = {
  'auth.ok': { client_id: '' },
  'auth.error': { code: 'unauthenticated', message: '' },
  error: { code: 'internal', message: '' },
  subscribed: { topics: [] },
  unsubscribed: { topics: [] },
};

/** Read a parsed frame: it; or why it is malformed; or undefined for a type that is not known. */
export function readFrame(fields: JsonObject): ServerFrame | string | undefined {
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
 * Read a parsed server-sent event; returns what `readFrame` returns.
 *
 * On an event stream the name of the event says which frame it is, so that `type` is the
 * application's: `message` carries a bare envelope.
 */
export function readEvent(event: string, fields: JsonObject): ServerFrame | string | undefined {
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
 * Read a message without a frame around it, as REST and `subscribed.history` carry it; or why it is
 * malformed.
 */
export function readEnvelope(value: unknown): Envelope | string {
  if (isEnvelope(value)) return value;
  if (!isObject(value)) return 'the message is not an object';
  const { type: kind } = value;
  return envelope(typeof kind === 'string' ? kind : appType(value), value);
}

/** Read one presence member; undefined if it names no client. */
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
  // What these readers let pass, a guard might not: it is not asked about these lists.
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
  const name = kind.replace(/(?:^|\.)(.)/g, (_, first: string) => first.toUpperCase());
  return `${name}Frame: \`${read}\` is missing or of a wrong type`;
}

/**
 * Read field by field, with conversions, without the optional fields that are odd; or the first
 * field, by name, that cannot do without.
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

/** What a value may be meant to be: itself, a number or a truth in words, an object less its nulls. */
function forms(value: unknown): unknown[] {
  if (value === 'true' || value === 'false') return [value, value === 'true'];
  if (typeof value === 'string') return [value, digits(value)];
  if (value === 0 || value === 1) return [value, value === 1];
  if (typeof value !== 'object' || value === null) return [value];
  const bare = withoutNulls(value);
  return [value, bare, withNumbers(bare)];
}

/** The same, without the fields that are null: they read as absent (spec/README.md). */
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
    // Without an id nothing tells a repeat from a further message; a loss would be worse.
    id: text(id) ?? (Number.isInteger(id) ? String(id) : messageId()),
    topic,
    type,
    data,
    // A clock of this machine must not move a position on the server's: 0 moves none.
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

/** A count that may have come as a float or in digits; undefined for anything else. */
function whole(value: unknown): number | undefined {
  const number = typeof value === 'string' ? digits(value) : value;
  const floor = typeof number === 'number' ? Math.floor(number) : undefined;
  return isCount(floor) ? floor : undefined;
}

function without(fields: JsonObject, names: readonly string[]): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([key]) => !names.includes(key)));
}
