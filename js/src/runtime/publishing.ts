/** What a program hands to `publish`, checked and made into publications; who waits for room. */

import type { Clock } from '../clock.js';
import { InvalidOption, InvalidPayload } from '../errors.js';
import { isPublication, type Publication } from '../generated/wire.js';
import { kind } from '../settings/checks.js';
import { validateTopic } from '../topics.js';
import type { Outgoing } from '../values.js';
import { compact } from '../wire/compact.js';
import { messageId } from '../wire/ids.js';
import { checkPublication } from '../wire/payloads.js';

/** A message of this type changes the sender's presence (HIP-56, Client SDK). */
export const PRESENCE_UPDATE = 'presence.update';

const FIELDS = ['topic', 'type', 'data', 'ttl', 'id', 'meta'];
const ID_MAX = 128;

/** A publication that can be sent. */
export interface Prepared {
  readonly publication: Publication;
  readonly id: string;
  /** Bytes it holds of the queue. */
  readonly size: number;
}

/**
 * Check one message and give it an id.
 *
 * @param topic Where it goes; undefined where the message names it.
 * @param message `{type, data}` with optional `ttl`, `id`, `meta`.
 * @param limit Bytes of JSON its data may have.
 * @param given `ttl` and `id` that go before the message's own.
 * @throws InvalidTopic The topic is not valid.
 * @throws InvalidPayload It has no data, or data that is not JSON.
 * @throws PayloadTooLarge The data is over the limit.
 * @throws InvalidOption Another field is not valid; `field` names it.
 */
export function prepare(
  topic: string | undefined,
  message: unknown,
  limit: number,
  given: { readonly ttl?: number | undefined; readonly id?: string | undefined } = {},
): Prepared {
  if (typeof message !== 'object' || message === null || Array.isArray(message)) {
    throw new InvalidPayload(`The message is ${kind(message)}, not an object.`, {
      remedy: 'Publish { type, data }.',
      field: 'message',
    });
  }
  const fields = message as Outgoing & { readonly topic?: string };
  for (const name of Object.keys(fields)) {
    if (FIELDS.includes(name)) continue;
    throw new InvalidOption(`The message has a field \`${name.slice(0, 64)}\`.`, {
      remedy: `Its fields are ${FIELDS.join(', ')}; put everything else into \`data\`.`,
      field: name,
    });
  }
  if (topic !== undefined && fields.topic !== undefined && fields.topic !== topic) {
    throw new InvalidOption('The message names another topic than the call.', {
      remedy: 'Leave the topic out of the message.',
      field: 'topic',
      topic,
    });
  }
  const name = validateTopic(topic ?? fields.topic);
  if (fields.data === undefined) {
    throw new InvalidPayload('The message has no `data`.', {
      remedy: 'Publish { type, data }.',
      field: 'data',
      topic: name,
    });
  }
  const id = given.id || fields.id || messageId();
  const publication = compact<Publication>({
    topic: name,
    type: fields.type,
    data: fields.data,
    ttl: given.ttl ?? fields.ttl,
    id,
    meta: fields.meta,
  });
  if (!isPublication(publication)) throw misfit(publication);
  return { publication, id, size: checkPublication(publication, limit) };
}

/** One item of `publishMany`: `[topic, message]`, or a message with its topic. */
export function splitItem(item: unknown): [topic: string | undefined, message: unknown] {
  if (Array.isArray(item)) {
    if (item.length === 2 && typeof item[0] === 'string') return [item[0], item[1]];
    throw new InvalidPayload(`An item is ${kind(item)}.`, {
      remedy: 'Give [topic, { type, data }] pairs.',
      field: 'messages',
    });
  }
  return [undefined, item];
}

function misfit({ topic, type, ttl, id, meta }: Publication): InvalidOption {
  const text = (value: unknown): boolean => typeof value === 'string' && value.length > 0;
  const [field, said] =
    type !== undefined && !text(type)
      ? ['type', 'is no text of 1 to 128 characters']
      : ttl !== undefined && !(Number.isSafeInteger(ttl) && ttl >= 0)
        ? ['ttl', 'is no whole number of seconds']
        : id !== undefined && !(text(id) && id.length <= ID_MAX)
          ? ['id', 'is no text of 1 to 128 characters']
          : meta !== undefined && (typeof meta !== 'object' || meta === null)
            ? ['meta', 'is no object']
            : ['message', 'is not valid'];
  return new InvalidOption(`\`${field}\` ${said}.`, { field, topic });
}

interface Turn {
  readonly messages: number;
  readonly size: number;
  readonly admit: (granted: boolean) => void;
}

/** Lets publishes in one by one, in order, as the queue has room (policy `block`). */
export class Turnstile {
  private readonly _waiting: Turn[] = [];

  /**
   * @param _hasRoom Whether so many messages of so many bytes fit.
   * @param _clock For the timeout.
   */
  constructor(
    private readonly _hasRoom: (messages: number, size: number) => boolean,
    private readonly _clock: Clock,
  ) {}

  /** Wait for room, then call `use` at once; false where the time passed first. */
  enter(
    messages: number,
    size: number,
    milliseconds: number,
    use: () => void,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    if (!this._waiting.length && this._hasRoom(messages, size)) {
      use();
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const turn: Turn = {
        messages,
        size,
        admit: (granted) => {
          const at = this._waiting.indexOf(turn);
          if (at < 0) return;
          this._waiting.splice(at, 1);
          timer.cancel();
          signal?.removeEventListener('abort', give);
          if (granted) use();
          resolve(granted);
        },
      };
      const give = (): void => {
        turn.admit(false);
        this.check();
      };
      const timer = this._clock.callLater(milliseconds, give);
      signal?.addEventListener('abort', give);
      this._waiting.push(turn);
    });
  }

  /** Let in who is first in line, as long as there is room. */
  check(): void {
    for (let first = this._waiting[0]; first; first = this._waiting[0]) {
      if (!this._hasRoom(first.messages, first.size)) return;
      first.admit(true);
    }
  }

  /** Let all in: the client has ended, and each publish learns of that. */
  open(): void {
    for (const turn of [...this._waiting]) turn.admit(true);
  }
}
