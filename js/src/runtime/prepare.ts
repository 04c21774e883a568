/** A message that a program hands to `publish`, as a publication that can be sent. */

import { isPublication, type Publication } from '../generated/wire.js';
import { compact } from '../wire/compact.js';
import { messageId } from '../wire/ids.js';
import { sizeOf } from '../wire/plain.js';

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
  const { topic: named = topic, type, data, ttl, id: own, meta, ...others } = Object(message);
  const id = given.id || own || messageId();
  const publication = compact<Publication>({
    topic: named,
    type,
    data,
    ttl: given.ttl ?? ttl,
    id,
    meta,
  });
  const sizes = [data, ...(meta === undefined ? [] : [meta])].map(sizeOf);
  const fits = sizes.every((size) => size <= limit) && !Object.keys(others).length;
  if (!fits || (topic ?? named) !== named || !isPublication(publication)) return undefined;
  return { publication, id, size: sizes.reduce((sum, size) => sum + size) };
}
