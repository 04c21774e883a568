/** The HTTP API as data: what to send for each operation, and what an answer means. No I/O. */

import { fromCode, ProtocolError, type PubSubError } from '../errors.js';
import { CODES } from '../generated/errors.js';
import { isSessionInfo, isTopicInfo } from '../generated/http.js';
import {
  type ErrorInfo,
  type HistoryPage,
  isErrorInfo,
  isPublishResult,
  type JsonObject,
  type PresenceMember,
  type Publication,
  type PublishResult,
  type SessionInfo,
  type TopicInfo,
} from '../generated/wire.js';
import { compact } from '../wire/compact.js';
import { readEnvelope, readMember } from '../wire/readings.js';
import { retryAfterOf } from './status.js';

/** What a status means where the body does not say it. */
const MEANINGS: ReadonlyMap<number, string> = new Map([
  [400, 'invalid_option'],
  [401, 'unauthenticated'],
  [403, 'forbidden'],
  [404, 'not_found'],
  [405, 'unsupported'],
  [408, 'timeout'],
  [409, 'conflict'],
  [413, 'payload_too_large'],
  [415, 'unsupported'],
  [422, 'invalid_payload'],
  [429, 'rate_limited'],
  [500, 'internal'],
  [501, 'unsupported'],
  [502, 'unavailable'],
  [503, 'unavailable'],
  [504, 'unavailable'],
]);

/** One request. */
export interface Call<T> {
  readonly method: 'GET' | 'POST';
  /** Beneath the base URL, quoted, with its query. */
  readonly path: string;
  /** Turns the body of a good answer into the result; throws ProtocolError. */
  readonly read: (body: string) => T;
  /** JSON, or undefined. */
  readonly body?: string | undefined;
  /** Beside `Authorization`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** It publishes: it may be repeated only where the peer has `idempotency`. */
  readonly publishes?: boolean | undefined;
  /** What it concerns, for errors. */
  readonly topic?: string | undefined;
  /** The message it publishes, for errors. */
  readonly id?: string | undefined;
}

// ---------------------------------------------------------------- what to send

/** Publish one message (H-070); its id is the idempotency key. */
export function publish(publication: Publication): Call<PublishResult> {
  const { topic, ...request } = publication;
  const { id } = publication;
  return {
    method: 'POST',
    path: `/v1/topics/${encodeURIComponent(topic)}/messages`,
    read: (body) => publishResult(jsonObject(body, true), id),
    body: JSON.stringify(request),
    headers: id === undefined ? {} : { 'Idempotency-Key': id },
    publishes: true,
    topic,
    id,
  };
}

/** Publish several messages in order; one result each, in the same order. */
export function publishBatch(messages: readonly Publication[]): Call<PublishResult[]> {
  return {
    method: 'POST',
    path: '/v1/messages:batch',
    read: (body) => {
      const { results } = jsonObject(body) as { results?: unknown };
      if (!Array.isArray(results) || results.length !== messages.length) {
        throw new ProtocolError(
          `The server answered a batch of ${messages.length} with other results.`,
        );
      }
      return results.map((item: unknown, n) => batchItem(object(item), messages[n]?.id));
    },
    body: JSON.stringify({ messages }),
    publishes: true,
  };
}

/** Which messages of a topic. */
export interface HistoryQuery {
  /** Only what is newer, Unix milliseconds. */
  readonly since?: number | undefined;
  /** Only what is older than the message with this id. */
  readonly before?: string | undefined;
  /** Only what follows this position. */
  readonly after?: number | undefined;
  /** Messages in the page, 1 to 500. */
  readonly limit?: number | undefined;
}

/** One page of what is retained of a topic (H-072). */
export function history(topic: string, query: HistoryQuery): Call<HistoryPage> {
  const { since, before, after, limit } = query;
  const path = `/v1/topics/${encodeURIComponent(topic)}/history`;
  return {
    method: 'GET',
    path: path + queryOf({ since, before, after, limit }),
    read: historyPage,
    topic,
  };
}

/** Everybody present on a topic (H-073). */
export function presence(topic: string): Call<PresenceMember[]> {
  return {
    method: 'GET',
    path: `/v1/topics/${encodeURIComponent(topic)}/presence`,
    read: (body) =>
      list(jsonObject(body), 'members')
        .map((entry) => readMember(entry))
        .filter((member) => member !== undefined),
    topic,
  };
}

/** Active topics, for administrators (H-074). */
export function topics(prefix?: string, limit?: number): Call<TopicInfo[]> {
  return {
    method: 'GET',
    path: `/v1/topics${queryOf({ prefix, limit })}`,
    read: (body) => list(jsonObject(body), 'topics').flatMap(topicInfo),
  };
}

/** What `auth.ok` would say on a socket; plain HIP-56 has no such operation. */
export function session(): Call<SessionInfo> {
  return {
    method: 'GET',
    path: '/v1/session',
    read: (body) => {
      const info = jsonObject(body);
      if (isSessionInfo(info)) return info;
      throw new ProtocolError('The server described its session in a way not understood.');
    },
  };
}

// ---------------------------------------------------------------- what an answer means

/**
 * The error that an HTTP error stands for.
 *
 * Reads `application/problem+json` (RFC 9457) and what plain peers send in its place: `{code,
 * message}`, `{error: {...}}`, `{error: "..."}`, `{detail: "..."}`, or nothing readable.
 *
 * @param wall Unix milliseconds, for dates in `Retry-After`.
 */
export function readError(
  status: number,
  headers: Headers,
  body: string,
  wall: number,
  topic?: string,
): PubSubError {
  const whole = parseObject(body);
  const word = text(whole['error']);
  const inner = object(whole['error']);
  const fields = Object.keys(inner).length ? inner : whole;
  let code = text(fields['code']);
  if (code === undefined && word !== undefined && CODES.has(word)) code = word;
  let message =
    text(fields['detail']) ??
    text(fields['message']) ??
    (word === code ? undefined : word) ??
    text(fields['title']);
  if (code === undefined || (!CODES.has(code) && /^\d+$/.test(code))) {
    code = MEANINGS.get(status) ?? (status >= 500 ? 'internal' : 'invalid_frame');
  }
  if (message === undefined && !Object.keys(fields).length) {
    message = `The server answered HTTP ${status} without saying why.`;
  }
  const wait = fields['retry_after_ms'];
  return fromCode(code, message, {
    remedy: text(fields['remedy']),
    topic: text(fields['topic']) ?? topic,
    field: text(fields['field']),
    retryAfter:
      typeof wait === 'number' ? Math.max(0, wait) : retryAfterOf(headers.get('Retry-After'), wall),
  });
}

/** An error as the result of one item of a batch. */
export function errorInfo(error: PubSubError): ErrorInfo {
  const { code, message, remedy, retryAfter, topic } = error;
  return compact<ErrorInfo>({
    code: code as ErrorInfo['code'],
    message,
    remedy,
    retry_after_ms: retryAfter,
    topic,
  });
}

function publishResult(fields: JsonObject, id: string | undefined): PublishResult {
  // It was taken, whatever the answer says about it.
  const read: PublishResult = isPublishResult(fields)
    ? (fields as PublishResult)
    : compact<PublishResult>({ id: text(fields['id'])?.slice(0, 128) });
  return compact<PublishResult>({ ...read, id: read.id ?? id });
}

function batchItem(fields: JsonObject, id: string | undefined): PublishResult {
  const { error } = fields as { error?: unknown };
  if (error === undefined || error === null) return publishResult(fields, id);
  if (isErrorInfo(error)) return compact<PublishResult>({ id, error });
  const code = (text(object(error)['code']) ?? 'internal') as ErrorInfo['code'];
  return compact<PublishResult>({ id, error: { code, message: '' } });
}

function historyPage(body: string): HistoryPage {
  const fields = jsonObject(body);
  const messages = list(fields, 'messages')
    .map((entry) => readEnvelope(entry))
    .filter((entry) => typeof entry !== 'string');
  const { position } = fields as { position?: unknown };
  return compact<HistoryPage>({
    messages,
    has_more: fields['has_more'] === true,
    position: Number.isSafeInteger(position) ? (position as number) : undefined,
    truncated: fields['truncated'] === true ? true : undefined,
    reset: fields['reset'] === true ? true : undefined,
  });
}

/** HIP-56 does not say what a TopicInfo is: names alone will do. */
function topicInfo(entry: unknown): TopicInfo[] {
  if (isTopicInfo(entry)) return [entry];
  const fields = object(entry);
  const topic = text(entry) ?? text(fields['topic']) ?? text(fields['name']);
  if (topic === undefined) return [];
  const count = (value: unknown): number =>
    Number.isSafeInteger(value) ? Math.max(0, value as number) : 0;
  const { subscribers, messages } = fields as { subscribers?: unknown; messages?: unknown };
  return [{ topic, subscribers: count(subscribers), messages: count(messages) }];
}

function queryOf(given: Readonly<Record<string, string | number | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined) query.set(name, String(value));
  }
  return query.size ? `?${query}` : '';
}

function jsonObject(body: string, empty = false): JsonObject {
  if (empty && !body.trim()) return {};
  try {
    const value: unknown = JSON.parse(body);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return value as JsonObject;
    }
  } catch {
    // Said below.
  }
  if (empty) return {};
  throw new ProtocolError("The server's answer is no JSON object; is the URL that of PubSub?");
}

function list(fields: JsonObject, name: string): readonly unknown[] {
  const found = fields[name] ?? [];
  if (Array.isArray(found)) return found;
  throw new ProtocolError(`\`${name}\` of the server's answer is no list.`);
}

function parseObject(body: string): JsonObject {
  try {
    return object(JSON.parse(body));
  } catch {
    return {};
  }
}

function object(value: unknown): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as JsonObject)
    : {};
}

function text(value: unknown): string | undefined {
  if (typeof value === 'number') return String(value);
  return typeof value === 'string' && value ? value : undefined;
}
