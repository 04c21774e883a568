/** Parses and validates frames and request bodies; each error names its field. */

import { InvalidTopic } from '../errors.js';
import type { JsonObject } from '../generated/wire.js';
import { checkName } from '../topic_names.js';
import { isCount, isObject, isText } from '../wire/guard.js';
import { sizeOf } from '../wire/plain.js';
import { Problem } from './problem.js';

/** Maximum topics of one subscribe frame; its `after` may have ten times as many positions. */
const MAX_NAMED = 1_000;
const MAX_HISTORY = 10_000;
/** Maximum bytes of the JSON-encoded `meta`. */
const MAX_META = 8_192;
const SHOWN = 255;

/** A message to publish. */
export interface Draft {
  readonly topic: string;
  readonly type: string;
  /** A private copy of the payload. */
  readonly data: unknown;
  readonly ttl: number | undefined;
  readonly id: string | undefined;
  readonly meta: JsonObject | undefined;
}

/** A subscription request. */
export interface Subscribe {
  readonly topics: readonly string[];
  readonly since: number | undefined;
  readonly after: Readonly<Record<string, number>> | undefined;
  readonly history: number | undefined;
  readonly presence: boolean | undefined;
  readonly ref: string | undefined;
  /** Errors of the invalid patterns. */
  readonly invalid: readonly Problem[];
}

/** A parsed frame, by kind. */
export type Request =
  | { readonly kind: 'auth'; readonly token: string; readonly clientId: string | undefined }
  | { readonly kind: 'subscribe'; readonly wanted: Subscribe }
  | { readonly kind: 'unsubscribe'; readonly topics: readonly string[] }
  | {
      readonly kind: 'publish';
      readonly items: readonly (Draft | Problem)[];
      readonly batch: boolean;
    }
  | {
      readonly kind: 'presence';
      readonly topic: string | undefined;
      readonly data: JsonObject;
    }
  | { readonly kind: 'ping' };

/** @throws Problem `invalid_frame`: it is not a JSON object. */
export function parseObject(text: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Problem('invalid_frame', 'not valid JSON');
  }
  if (isObject(value)) return value;
  throw new Problem('invalid_frame', `a frame is a JSON object, not ${kindOf(value)}`);
}

/** The `ref` of a frame that may be invalid otherwise. */
export function refOf({ ref }: JsonObject): string | undefined {
  return isText(ref, 1, 64) ? (ref as string) : undefined;
}

/**
 * Parse a frame of a client.
 *
 * A publish has its message under `message`, several under `messages`, or is flat as in HIP-56,
 * with the application's type in `message_type`.
 *
 * @throws Problem `invalid_frame`, `invalid_topic`, `unsupported`.
 */
export function readRequest(frame: JsonObject, maxPayload: number): Request {
  const { type, ref } = frame;
  field(typeof type === 'string', 'type', 'a string', type);
  field(ref === undefined || refOf(frame) !== undefined, 'ref', '1 to 64 characters', ref);
  if (type === 'ping') return { kind: 'ping' };
  if (type === 'publish') return readPublish(frame, maxPayload);
  if (type === 'subscribe') return { kind: 'subscribe', wanted: readSubscribe(frame) };
  if (type === 'unsubscribe') return { kind: 'unsubscribe', topics: namesIn(frame) };
  if (type === 'auth') {
    const { token, client_id: clientId } = frame;
    field(isText(token, 1, 16_384), 'token', '1 to 16,384 characters', token);
    field(clientId === undefined || isText(clientId, 0, 64), 'client_id', 'a short text', clientId);
    return {
      kind: 'auth',
      token: token as string,
      clientId: (clientId as string | undefined) || undefined,
    };
  }
  if (type === 'presence.update') {
    const { topic, data } = frame;
    field(isObject(data), 'data', 'an object', data);
    const named = topic === undefined ? undefined : checkTopic(topic, 'topic');
    return { kind: 'presence', topic: named, data: data as JsonObject };
  }
  throw new Problem('unsupported', 'the type of this frame is unknown', { field: 'type' });
}

/**
 * Parse a subscribe frame, or one item of the HTTP API. An invalid pattern is reported separately.
 */
export function readSubscribe(frame: JsonObject): Subscribe {
  const { since, after, history, presence } = frame;
  field(since === undefined || isCount(since), 'since', 'Unix milliseconds', since);
  field(
    after === undefined ||
      (isObject(after) &&
        Object.keys(after).length <= 10 * MAX_NAMED &&
        Object.values(after).every((seq) => isCount(seq))),
    'after',
    'an object of positions',
    after,
  );
  field(
    history === undefined || isCount(history, MAX_HISTORY),
    'history',
    `a number from 0 to ${MAX_HISTORY}`,
    history,
  );
  field(
    presence === undefined || typeof presence === 'boolean',
    'presence',
    'true or false',
    presence,
  );
  const topics: string[] = [];
  const invalid: Problem[] = [];
  for (const pattern of namesIn(frame)) {
    try {
      topics.push(checkName(pattern, 'pattern'));
    } catch (error) {
      if (!(error instanceof InvalidTopic)) throw error;
      const details = { topic: pattern.slice(0, SHOWN), field: 'topics' };
      invalid.push(new Problem('invalid_topic', error.message, details));
    }
  }
  return { topics, since, after, history, presence, ref: refOf(frame), invalid } as Subscribe;
}

/**
 * Parse one message to publish.
 *
 * @param topic The topic, if the path of the request contains it.
 * @param at Path of the message in the body, for errors.
 * @throws Problem `invalid_topic`, `invalid_frame`, `invalid_payload`, `payload_too_large`.
 */
export function readPublication(body: unknown, maxPayload: number, topic?: string, at = ''): Draft {
  field(isObject(body), at || 'message', 'an object', body);
  const { type, data, ttl, id, meta, ...others } = body as JsonObject;
  const prefix = at && `${at}.`;
  const named = checkTopic(topic ?? others['topic'], `${prefix}topic`);
  field(type === undefined || isText(type, 1, 128), `${prefix}type`, '1 to 128 characters', type);
  field(ttl === undefined || isCount(ttl), `${prefix}ttl`, 'a whole number of seconds', ttl);
  field(id === undefined || isText(id, 1, 128), `${prefix}id`, '1 to 128 characters', id);
  field(meta === undefined || isObject(meta), `${prefix}meta`, 'an object', meta);
  field(data !== undefined, `${prefix}data`, 'a JSON value', data, named);
  checkSize(data, `${prefix}data`, maxPayload, named);
  if (meta) checkSize(meta, `${prefix}meta`, MAX_META, named);
  return { topic: named, type: type ?? 'message', data, ttl, id, meta } as Draft;
}

/** @throws Problem `invalid_payload`, `payload_too_large`. */
export function checkSize(value: unknown, at: string, limit: number, topic?: string): void {
  const size = sizeOf(value);
  if (size <= limit) return;
  const details = { topic, field: at };
  if (Number.isNaN(size)) {
    throw new Problem('invalid_payload', `\`${at}\` cannot be written as JSON`, details);
  }
  const detail = `\`${at}\` has ${size} bytes of JSON; at most ${limit} are allowed`;
  throw new Problem('payload_too_large', detail, details);
}

/** @throws Problem `invalid_topic`, `invalid_frame`. */
export function checkTopic(name: unknown, at: string): string {
  field(typeof name === 'string', at, 'a string', name);
  try {
    return checkName(name, 'topic');
  } catch (error) {
    if (!(error instanceof InvalidTopic)) throw error;
    const details = { topic: (name as string).slice(0, SHOWN), field: at };
    throw new Problem('invalid_topic', error.message, details);
  }
}

function readPublish(frame: JsonObject, maxPayload: number): Request {
  const { message, messages, message_type: kind, ...flat } = frame;
  const read = (body: unknown, at: string): Draft | Problem => {
    try {
      return readPublication(body, maxPayload, undefined, at);
    } catch (error) {
      if (error instanceof Problem) return error;
      throw error;
    }
  };
  if (messages !== undefined) {
    const isList = Array.isArray(messages) && messages.length > 0;
    field(isList, 'messages', 'a list of messages', messages);
    const items = (messages as unknown[]).map((body, n) => read(body, `messages.${n}`));
    return { kind: 'publish', items, batch: true };
  }
  const nested = message !== undefined;
  const item = nested ? read(message, 'message') : read({ ...flat, type: kind }, '');
  return { kind: 'publish', items: [item], batch: false };
}

function namesIn({ topics }: JsonObject): string[] {
  const isList =
    Array.isArray(topics) &&
    topics.length > 0 &&
    topics.length <= MAX_NAMED &&
    topics.every((name) => typeof name === 'string');
  field(isList, 'topics', `a list of 1 to ${MAX_NAMED} strings`, topics);
  return [...new Set(topics as string[])];
}

function field(good: boolean, name: string, kind: string, value: unknown, topic?: string): void {
  if (good) return;
  const problem = value === undefined ? 'is missing' : `is ${kind}, not ${kindOf(value)}`;
  throw new Problem('invalid_frame', `\`${name}\` ${problem}`, { field: name, topic });
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
