/**
 * Every plausible reading of a HIP-56 frame, put into the canonical shape.
 *
 * One JSON object cannot hold both the `type` of a frame and the `type` of the message in it, and
 * HIP-56 asks for both. So peers may send a message nested under `message`, `envelope` or `payload`,
 * or flat with the application's type in `message_type`, `msg_type` or `event`, or flat with that
 * type in the place of the frame's, or flat without any. Presence events come bare or as messages,
 * error codes as numbers, members with `id` in place of `client_id`, and messages without a
 * timestamp.
 *
 * An odd optional field is left out, an odd member or history entry is left out of its list, so that
 * the rest is not lost with it; only what makes no sense at all is refused.
 */

import {
  type Envelope,
  isAuthErrorFrame,
  isAuthExpiringFrame,
  isAuthOkFrame,
  isEnvelope,
  isErrorFrame,
  isPongFrame,
  isPresenceMember,
  isPresenceSnapshotFrame,
  isPublishedFrame,
  isSender,
  isSubscribedFrame,
  isUnsubscribedFrame,
  type JsonObject,
  type PresenceMember,
  type Sender,
  type ServerFrame,
} from '../generated/wire.js';
import { compact } from './compact.js';
import { messageId } from './ids.js';

/** A type of the wire: its name, its guard, and its required fields with values that pass. */
interface Shape<T> {
  readonly name: string;
  readonly is: (value: unknown) => value is T;
  readonly required: JsonObject;
}

const CONTROL: ReadonlyMap<string, Shape<ServerFrame>> = new Map<string, Shape<ServerFrame>>([
  ['auth.ok', { name: 'AuthOkFrame', is: isAuthOkFrame, required: { client_id: '' } }],
  [
    'auth.error',
    { name: 'AuthErrorFrame', is: isAuthErrorFrame, required: { code: '', message: '' } },
  ],
  ['auth.expiring', { name: 'AuthExpiringFrame', is: isAuthExpiringFrame, required: {} }],
  ['subscribed', { name: 'SubscribedFrame', is: isSubscribedFrame, required: { topics: [] } }],
  [
    'unsubscribed',
    { name: 'UnsubscribedFrame', is: isUnsubscribedFrame, required: { topics: [] } },
  ],
  ['published', { name: 'PublishedFrame', is: isPublishedFrame, required: {} }],
  [
    'presence.snapshot',
    {
      name: 'PresenceSnapshotFrame',
      is: isPresenceSnapshotFrame,
      required: { topic: 'a', members: [] },
    },
  ],
  ['pong', { name: 'PongFrame', is: isPongFrame, required: {} }],
  ['error', { name: 'ErrorFrame', is: isErrorFrame, required: { code: '', message: '' } }],
]);
const MEMBER: Shape<PresenceMember> = {
  name: 'PresenceMember',
  is: isPresenceMember,
  required: { client_id: '', user_id: '', name: '', joined_at: 0, last_seen: 0 },
};
const PRESENCE: ReadonlySet<unknown> = new Set([
  'presence.join',
  'presence.leave',
  'presence.update',
]);
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

/** Read a parsed frame: it; or why it is malformed; or undefined for a type that is not known. */
export function readFrame(fields: JsonObject): ServerFrame | string | undefined {
  const kind = 'type' in fields ? fields['type'] : 'message';
  if (typeof kind !== 'string') return '`type` is not a string';
  if (PRESENCE.has(kind)) return readPresence(kind, fields);
  if (CONTROL.has(kind)) {
    const flat = kind === 'error' && 'id' in fields && 'topic' in fields && 'data' in fields;
    return flat ? readMessage(kind, fields) : readControl(kind, fields);
  }
  if (kind === 'message') return readMessage(appType(fields), fields);
  return 'topic' in fields && 'id' in fields ? readMessage(kind, fields) : undefined;
}

/**
 * Read a parsed server-sent event; returns what `readFrame` returns.
 *
 * On an event stream the name of the event says which frame it is, so that `type` is the
 * application's: `message` carries a bare envelope.
 */
export function readEvent(event: string, fields: JsonObject): ServerFrame | string | undefined {
  const kind = fields['type'];
  if (event === 'message') {
    if (nested(fields) || (kind === 'message' && appType(fields) !== 'message')) {
      return readFrame(fields);
    }
    return readMessage(typeof kind === 'string' ? kind : 'message', fields);
  }
  if (event === 'presence' || event === 'presence.snapshot') {
    if ('members' in fields) return readControl('presence.snapshot', fields);
    return PRESENCE.has(kind) ? readPresence(String(kind), fields) : undefined;
  }
  return readFrame({ ...fields, type: event });
}

/**
 * Read a message without a frame around it, as REST and `subscribed.history` carry it; or why it is
 * malformed.
 */
export function readEnvelope(value: unknown): Envelope | string {
  if (isEnvelope(value)) return value;
  const fields = object(value);
  if (!fields) return 'the message is not an object';
  const kind = fields['type'];
  return envelope(typeof kind === 'string' ? kind : appType(fields), fields);
}

/** Read one presence member; undefined for what names nobody. */
export function readMember(value: unknown): PresenceMember | undefined {
  const fields = object(value);
  const who = text(fields?.['client_id']) ?? text(fields?.['id']) ?? text(fields?.['user_id']);
  if (!fields || who === undefined) return undefined;
  const user = text(fields['user_id']) ?? who;
  const read = validate(MEMBER, {
    ...fields,
    client_id: who,
    user_id: user,
    name: text(fields['name']) ?? user,
    joined_at: whole(fields['joined_at']) ?? 0,
    last_seen: whole(fields['last_seen']) ?? 0,
  });
  return typeof read === 'string' ? undefined : read;
}

function readMessage(kind: string, fields: JsonObject): ServerFrame | string {
  const inside = nested(fields);
  const type = inside?.['type'];
  const read = inside
    ? envelope(typeof type === 'string' ? type : kind, { ...without(fields, NESTS), ...inside })
    : envelope(kind, fields);
  return typeof read === 'string' ? read : { type: 'message', message: read };
}

function readPresence(kind: string, fields: JsonObject): ServerFrame | string {
  if (nested(fields) || 'data' in fields) return readMessage(kind, fields);
  const data = object(fields['member']) ?? without(fields, NOT_DATA);
  return readMessage(kind, { ...fields, data });
}

function readControl(kind: string, fields: JsonObject): ServerFrame | string {
  const shape = CONTROL.get(kind);
  if (!shape) return '`type` is not known';
  const full: Record<string, unknown> = { ...fields, type: kind };
  for (const name of ['topics', 'truncated', 'reset', 'features']) {
    if (typeof full[name] === 'string') full[name] = [full[name]];
  }
  if (Number.isInteger(full['ref'])) full['ref'] = String(full['ref']);
  if (kind === 'error' || kind === 'auth.error') {
    const code = 'code' in full ? full['code'] : full['error'];
    const known = typeof code === 'string' || Number.isInteger(code);
    const usual = kind === 'error' ? 'internal' : 'unauthenticated';
    full['code'] = known ? String(code) : usual;
    if (!('message' in full)) full['message'] = '';
  } else if (kind === 'auth.ok') {
    if (!('client_id' in full)) full['client_id'] = '';
  } else if (kind === 'subscribed' || kind === 'unsubscribed') {
    if (!('topics' in full)) full['topics'] = [];
  }
  // What these readers let pass, a guard might not: it is not asked about these lists again.
  const lists: Record<string, unknown> = {};
  if (Array.isArray(full['history'])) {
    lists['history'] = full['history']
      .map(readEnvelope)
      .filter((entry) => typeof entry !== 'string');
  }
  if (kind === 'presence.snapshot' && Array.isArray(full['members'])) {
    lists['members'] = full['members'].map(readMember).filter((member) => member !== undefined);
    full['members'] = [];
  }
  const read = validate(shape, 'history' in lists ? without(full, ['history']) : full);
  return typeof read === 'string' ? read : { ...read, ...lists };
}

/** Validate field by field, with conversions, without the optional fields that are odd. */
function validate<T>({ name, is, required }: Shape<T>, fields: JsonObject): T | string {
  const type = 'type' in fields ? { type: fields['type'] } : {};
  const odd = new Set(Object.keys(required));
  const kept: [string, unknown][] = [];
  for (const [key, value] of Object.entries(fields)) {
    const fitting = forms(value).find((form) => is({ ...type, ...required, [key]: form.value }));
    if (fitting) {
      kept.push([key, fitting.value]);
      odd.delete(key);
    }
  }
  const [missing] = [...odd].sort();
  if (missing !== undefined) return `${name}: \`${missing}\` is missing or of a wrong type`;
  const read: unknown = Object.fromEntries(kept);
  return is(read) ? read : `${name} cannot be read`;
}

/** What a value may be meant to be: itself, a number or a truth in words, an object less its nulls. */
function forms(value: unknown): { readonly value: unknown }[] {
  const found: { value: unknown }[] = [{ value }];
  if (typeof value === 'string') {
    const number = digits(value);
    if (number !== undefined) found.push({ value: number });
    if (value === 'true' || value === 'false') found.push({ value: value === 'true' });
  } else if (value === 0 || value === 1) {
    found.push({ value: value === 1 });
  } else if (typeof value === 'object' && value !== null) {
    const bare = withoutNulls(value);
    found.push({ value: bare }, { value: withNumbers(bare) });
  }
  return found;
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  const fields = object(value);
  if (!fields) return value;
  return Object.fromEntries(
    Object.entries(fields)
      .filter(([, one]) => one !== null)
      .map(([key, one]) => [key, withoutNulls(one)]),
  );
}

function withNumbers(value: unknown): unknown {
  const fields = object(value);
  if (!fields) return value;
  return Object.fromEntries(
    Object.entries(fields).map(([key, one]) => [
      key,
      typeof one === 'string' ? (digits(one) ?? one) : one,
    ]),
  );
}

function envelope(kind: string, fields: JsonObject): Envelope | string {
  const topic = text(fields['topic']);
  if (topic === undefined) return 'the message has no topic';
  if (!('data' in fields)) return 'the message has no data';
  const id = fields['id'];
  return compact<Envelope>({
    ...without(fields, APP_TYPES),
    // Without an id nothing tells a repeat from a further message; a loss would be worse.
    id: text(id) ?? (Number.isInteger(id) ? String(id) : messageId()),
    topic,
    type: kind,
    data: fields['data'],
    // A clock of this machine must not move a position on the server's: 0 moves none.
    timestamp: whole(fields['timestamp']) ?? 0,
    sender: sender(fields['sender']),
    ttl: whole(fields['ttl']),
    seq: whole(fields['seq']),
    meta: object(fields['meta']),
  });
}

function sender(value: unknown): Sender | undefined {
  if (typeof value === 'string') return { type: '', id: value };
  const full = { type: '', ...object(value) };
  return isSender(full) ? full : undefined;
}

function nested(fields: JsonObject): JsonObject | undefined {
  for (const name of NESTS) {
    const inner = object(fields[name]);
    if (inner && 'data' in inner && ('topic' in inner || 'id' in inner || 'type' in inner)) {
      return inner;
    }
  }
  return undefined;
}

function object(value: unknown): JsonObject | undefined {
  return isObject(value) ? value : undefined;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function appType(fields: JsonObject): string {
  for (const name of APP_TYPES) {
    const value = text(fields[name]);
    if (value !== undefined) return value;
  }
  return 'message';
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function digits(value: string): number | undefined {
  return /^\d{1,20}$/.test(value) ? Number(value) : undefined;
}

/** A count that may have come as a float or in digits; undefined for anything else. */
function whole(value: unknown): number | undefined {
  const number = typeof value === 'string' ? digits(value) : value;
  if (typeof number !== 'number') return undefined;
  const floor = Math.floor(number);
  return floor >= 0 && Number.isSafeInteger(floor) ? floor : undefined;
}

function without(fields: JsonObject, names: readonly string[]): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([key]) => !names.includes(key)));
}
