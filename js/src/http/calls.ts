/** The HTTP API as data: what to send for each operation, and what an answer means. No I/O. */

import { DEVELOPMENT } from '../build.js';
import { compact } from '../compact.js';
import { ProtocolError } from '../errors.js';
import type { HistoryPage, Occupancy, SessionInfo, TopicInfo } from '../generated/http.js';
import { isSessionInfo, isTopicInfo } from '../generated/http.js';
import {
  type ErrorInfo,
  isErrorInfo,
  isPublishResult,
  type PresenceMember,
  type Publication,
  type PublishResult,
} from '../generated/wire.js';
import { isCount, isObject, type JsonObject } from '../wire/guard.js';
import { readEnvelope, readMember, withoutNulls } from '../wire/readings.js';
import { parse, wordOf } from './problems.js';
import type { Request } from './request.js';

/** One operation. */
export interface Call<T> extends Request {
  /** Converts the body of a successful answer to the result; throws ProtocolError. */
  readonly read: (body: string) => T;
  /** It publishes: repeat it only if the peer supports `idempotency`. */
  readonly isPublish?: boolean | undefined;
  /** Its topic, for errors. */
  readonly topic?: string | undefined;
  /** Id of the published message, for errors. */
  readonly id?: string | undefined;
}

/** Publish one message (H-070); its id is the idempotency key. */
export function publish(publication: Publication): Call<PublishResult> {
  const { topic, ...request } = publication;
  const { id } = publication;
  return {
    method: 'POST',
    path: pathOf(topic, 'messages'),
    read: (body) => {
      const result = publishResult(answerOf(body));
      if (result) return result;
      throw new ProtocolError('It has no `id` or no `timestamp`.');
    },
    body: JSON.stringify(request),
    // A header carries visible ASCII only; the body has every id.
    headers: id && /^[!-~]+$/.test(id) ? { 'Idempotency-Key': id } : {},
    isPublish: true,
    topic,
    id,
  };
}

/** Publish several messages in order; one result each, in the same order. */
export function publishBatch(messages: readonly Publication[]): Call<PublishResult[]> {
  const { length } = messages;
  return {
    method: 'POST',
    path: '/v1/messages:batch',
    read: (body) => {
      const { results } = answerOf(body) as { results?: unknown };
      if (!Array.isArray(results) || results.length !== length) {
        throw new ProtocolError(
          DEVELOPMENT ? `The server answered a batch of ${length} with other results.` : undefined,
        );
      }
      return messages.map(({ id }, n) => batchItem(results[n], id));
    },
    body: JSON.stringify({ messages }),
    isPublish: true,
  };
}

/** Selects messages of a topic. */
export interface HistoryQuery {
  /** Only newer messages, Unix milliseconds. */
  readonly since?: number | undefined;
  /** Only messages older than the one with this id. */
  readonly before?: string | undefined;
  /** Only messages before this position; a server that knows it ignores `before`. */
  readonly before_seq?: number | undefined;
  /** Only messages after this position. */
  readonly after?: number | undefined;
  /** Maximum messages of the page, 1 to 500. */
  readonly limit?: number | undefined;
}

/** A page of history, as far as it can be read. */
export interface Page extends HistoryPage {
  /** The ids of its entries that have one, including malformed entries. */
  readonly ids: readonly string[];
  /** The positions of its entries that have one, including malformed entries. */
  readonly positions: readonly number[];
}

/** One page of the retained messages of a topic (H-072). */
export function history(topic: string, query: HistoryQuery): Call<Page> {
  return {
    method: 'GET',
    path: pathOf(topic, 'history') + queryOf({ ...query }),
    read: (body) => {
      const answer = answerOf(body);
      if (!answer['messages']) throw new ProtocolError('It has no `messages`.');
      const entries = listIn(answer, 'messages');
      return {
        messages: entries.map(readEnvelope).filter((entry) => typeof entry !== 'string'),
        ids: entries.map((entry) => wordOf(Object(entry).id)).filter((id) => id !== undefined),
        positions: entries.map((entry) => Object(entry).seq).filter((seq) => isCount(seq)),
        has_more: answer['has_more'] === true,
      };
    },
    topic,
  };
}

/** The members of a topic (H-073). */
export function presence(topic: string): Call<PresenceMember[]> {
  return {
    method: 'GET',
    path: pathOf(topic, 'presence'),
    read: (body) => listIn(answerOf(body), 'members').flatMap((entry) => readMember(entry) ?? []),
    topic,
  };
}

/** The number of members of one topic; plain HIP-56 does not define this operation. */
export function occupancy(topic: string): Call<Occupancy> {
  return {
    method: 'GET',
    path: pathOf(topic, 'occupancy'),
    read: (body) => {
      const { members, users } = answerOf(body);
      if (isCount(members) && isCount(users)) return { members, users } as Occupancy;
      throw new ProtocolError('It has no numbers of members and users.');
    },
    topic,
  };
}

/** Active topics, for administrators (H-074). */
export function topics(prefix?: string, limit?: number): Call<TopicInfo[]> {
  return {
    method: 'GET',
    path: `/v1/topics${queryOf({ prefix, limit })}`,
    read: (body) => listIn(answerOf(body), 'topics').flatMap(topicInfo),
  };
}

/**
 * The content of `auth.ok` on a socket; plain HIP-56 does not define this operation.
 *
 * @param client_id The client that the next event stream resumes. The answer names the id that the
 *   stream gets.
 */
export function sessionInfo(client_id?: string): Call<SessionInfo> {
  return {
    method: 'GET',
    path: `/v1/session${queryOf({ client_id })}`,
    read: (body) => {
      const info = withoutNulls(answerOf(body));
      if (isSessionInfo(info)) return info;
      throw new ProtocolError('The session of the server has an unknown format.');
    },
  };
}

/**
 * The result of a published message; undefined if the answer does not confirm it: a gateway or web
 * site in front of the server may also answer 200.
 */
function publishResult(answer: JsonObject): PublishResult | undefined {
  const fields = withoutNulls(answer) as JsonObject;
  const id = wordOf(fields['id'])?.slice(0, 128);
  if (id === undefined || typeof fields['timestamp'] !== 'number') return undefined;
  return isPublishResult(fields) ? (fields as PublishResult) : { id };
}

function batchItem(item: unknown, id: string | undefined): PublishResult {
  const fields = isObject(item) ? item : {};
  const error = withoutNulls(fields['error']);
  if (error === undefined || error === null) {
    const unknown: ErrorInfo = {
      code: 'outcome_unknown',
      message: 'The server sent no result for it.',
    };
    return publishResult(fields) ?? compact<PublishResult>({ id, error: unknown });
  }
  if (isErrorInfo(error)) return compact<PublishResult>({ id, error });
  const code = (isObject(error) && wordOf(error['code'])) || 'internal';
  return compact<PublishResult>({ id, error: { code: code as ErrorInfo['code'], message: '' } });
}

/** HIP-56 does not define a TopicInfo, so also accept names. */
function topicInfo(entry: unknown): TopicInfo[] {
  const info = withoutNulls(entry);
  if (isTopicInfo(info)) return [info];
  const { topic, name, subscribers, messages } = isObject(entry) ? entry : { topic: entry };
  const known = wordOf(topic) ?? wordOf(name);
  const count = (value: unknown): number => (isCount(value) ? (value as number) : 0);
  if (known === undefined) return [];
  return [{ topic: known, subscribers: count(subscribers), messages: count(messages) }];
}

function pathOf(topic: string, what: string): string {
  return `/v1/topics/${encodeURIComponent(topic)}/${what}`;
}

function queryOf(given: Readonly<Record<string, string | number | undefined>>): string {
  const query = new URLSearchParams(compact<Record<string, string>>(given as never)).toString();
  return query && `?${query}`;
}

function answerOf(body: string): JsonObject {
  const answer = parse(body);
  if (answer) return answer;
  throw new ProtocolError('It is not the JSON object that a PubSub server sends.');
}

function listIn(fields: JsonObject, name: string): readonly unknown[] {
  const found = fields[name] ?? [];
  if (Array.isArray(found)) return found;
  throw new ProtocolError(
    DEVELOPMENT ? `\`${name}\` of the server's answer is not a list.` : undefined,
  );
}
