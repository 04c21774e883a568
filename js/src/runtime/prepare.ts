/** A message that a program hands to `publish`, as a publication that can be sent. */

import { DEVELOPMENT } from '../build.js';
import { isPublication, type Publication } from '../generated/wire.js';
import { messageId } from '../wire/ids.js';
import { sizeOf } from '../wire/plain.js';

/** What a message may have. */
const FIELDS = DEVELOPMENT ? ['topic', 'type', 'data', 'ttl', 'id', 'meta'] : [];

/** A publication that can be sent. */
export interface Prepared {
  readonly publication: Publication;
  readonly id: string;
  /** Bytes it holds of the queue. */
  readonly size: number;
}

/**
 * Make a publication of one message, with an id.
 *
 * @param topic Where it goes; undefined where the message names it.
 * @param message `{type, data}` with optional `ttl`, `id`, `meta`.
 * @param limit Bytes of JSON its data may have.
 * @param given `ttl` and `id` that go before the message's own.
 * @returns Undefined where it cannot be published; `refuseMessage` knows why.
 */
export function prepare(
  topic: string | undefined,
  message: unknown,
  limit: number,
  given: { readonly ttl?: number | undefined; readonly id?: string | undefined } = {},
): Prepared | undefined {
  const source: Readonly<Record<string, unknown>> = Object(message);
  const { topic: named = topic, type, data, meta } = source;
  const ttl = given.ttl ?? source['ttl'];
  const id = given.id || (source['id'] as string | undefined) || messageId();
  const publication: Record<string, unknown> = { topic: named, type, data, id };
  if (ttl !== undefined) publication['ttl'] = ttl;
  if (meta !== undefined) publication['meta'] = meta;
  const bytes = sizeOf(data);
  const more = meta === undefined ? 0 : sizeOf(meta);
  const fits = bytes <= limit && more <= limit && (topic ?? named) === named;
  if (!fits || !isPublication(publication)) return undefined;
  if (DEVELOPMENT && !Object.keys(source).every((name) => FIELDS.includes(name))) return undefined;
  return { publication, id, size: bytes + more };
}
