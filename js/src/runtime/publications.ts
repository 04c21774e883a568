/** Messages of the program as publications, and the options of their publishes. */

import { DEVELOPMENT } from '../build.js';
import { isPublication, type Publication } from '../generated/wire.js';
import { checkCall, checkChoice, checkType } from '../settings/checks.js';
import type { Via } from '../values.js';
import { messageId } from '../wire/ids.js';
import { isPaired, sizeOf } from '../wire/plain.js';
import type { Waiting } from './waiting.js';

/** Fields of a message. */
const FIELDS = DEVELOPMENT ? isPublication.fields.map(({ name }) => name) : [];

/** Options of `publishMany`. */
export interface PublishManyOptions extends Waiting {
  /**
   * With the policy `latest`, a newer message with the same key replaces one that is not sent yet.
   */
  readonly key?: string | undefined;
  /**
   * If the publish rate is used up, send it after the other publishes of this client, which may
   * overtake it.
   */
  readonly background?: boolean | undefined;
  /** `auto` uses the open connection, or HTTP if the connection does not carry publishes. */
  readonly via?: Via | undefined;
}

/** Options of `publish`. */
export interface PublishOptions extends PublishManyOptions {
  /** Seconds in history; 0 stores nothing. Default: `ttl` of the message, or the server's. */
  readonly ttl?: number | undefined;
  /** Message id, at most 128 characters; default `msg_` and a ULID. */
  readonly id?: string | undefined;
}

/** @internal The default options. */
export const NONE: PublishOptions = {};

/** @internal Reject options other than those of `publishMany` and `more`. */
export function checkPublishing(options: PublishManyOptions, more: readonly string[]): void {
  if (!DEVELOPMENT || options === NONE) return;
  checkCall(options, [...more, 'key', 'background', 'via']);
  const { key, via = 'auto' } = options;
  checkChoice('via', via, ['auto', 'socket', 'rest']);
  checkType('key', key, 'string', 'Give a string: messages with the same key replace each other.');
}

/** A message that can be published. */
export interface Prepared {
  readonly _message: Publication & { readonly id: string };
  /** Bytes that it counts for in the queue. */
  readonly size: number;
}

/**
 * @internal Create a publication from one message, with an id.
 *
 * @param topic Its topic; undefined if the message contains it.
 * @param message `{type, data}` with optional `ttl`, `id`, `meta`.
 * @param limit Maximum bytes of its JSON data.
 * @param given `ttl` and `id` that override the message's own.
 * @returns Undefined if it cannot be published; `refuseMessage` throws the reason.
 */
export function prepare(
  topic: string | undefined,
  message: unknown,
  limit: number,
  given: PublishOptions = NONE,
): Prepared | undefined {
  const source: Readonly<Record<string, unknown>> = Object(message);
  const { topic: named = topic, type, data, meta } = source;
  const ttl = given.ttl ?? source['ttl'];
  const id = given.id ?? source['id'] ?? messageId();
  const publication: Record<string, unknown> = { topic: named, type, data, id };
  if (ttl !== undefined) publication['ttl'] = ttl;
  if (meta !== undefined) publication['meta'] = meta;
  const bytes = sizeOf(data);
  const more = meta === undefined ? 0 : sizeOf(meta);
  const fits = bytes <= limit && more <= limit && (topic ?? named) === named;
  if (!fits || !isPublication(publication) || !isPaired(`${type},${id}`)) return undefined;
  if (DEVELOPMENT && !Object.keys(source).every((name) => FIELDS.includes(name))) return undefined;
  return { _message: publication as Prepared['_message'], size: bytes + more };
}
