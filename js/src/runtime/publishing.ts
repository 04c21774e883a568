/** Publishes one message, from the arguments of `publish` to its result; batches use this. */

import { DEVELOPMENT } from '../build.js';
import { PubSubError } from '../errors.js';
import {
  isPublication,
  type JsonObject,
  type Publication,
  type PublishResult,
} from '../generated/wire.js';
import type { Outcome } from '../session/ports.js';
import { checkCall, checkChoice, invalid, kind } from '../settings/checks.js';
import type { Published, Via } from '../values.js';
import { messageId } from '../wire/ids.js';
import { sizeOf } from '../wire/plain.js';
import type { Driver } from './driver.js';
import { PARTS } from './parts.js';
import { rejected } from './rejected.js';
import type { Waiting } from './waiting.js';

/** A message of this type changes the sender's presence (HIP-56, Client SDK). */
const PRESENCE_UPDATE = 'presence.update';

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
  const { key = '', via = 'auto' } = options;
  checkChoice('via', via, ['auto', 'socket', 'rest']);
  if (typeof key === 'string') return;
  throw invalid(
    'key',
    `is ${kind(key)}, not a string`,
    'Give any text that names what is replaced.',
  );
}

/** A publication that can be sent. */
export interface Prepared {
  readonly publication: Publication;
  readonly id: string;
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

/** @internal Publish one message; see `PubSub.publish`. */
export async function publish(
  driver: Driver,
  topic: string,
  message: unknown,
  options: PublishOptions,
): Promise<Published> {
  driver.checkOpen();
  checkPublishing(options, ['ttl', 'id']);
  const { maxPayload } = driver;
  const one = prepare(topic, message, maxPayload, options);
  if (!one) {
    const { refuseMessage } = await driver.part(PARTS.arguments(), options);
    return refuseMessage(topic, message, maxPayload, options);
  }
  const { data, type } = one.publication;
  if (type === PRESENCE_UPDATE && options.via !== 'rest') {
    const { updatePresence } = await driver.part(PARTS.background(), options);
    await updatePresence(driver, topic, data as JsonObject, options, PARTS.arguments);
    return published({}, one) as Published;
  }
  const end = driver.clock.now() + driver.timeoutOf(options.timeout);
  const outcome = await enter(driver, [one], options, end);
  const [result] = await resultsOf(driver, [one], options, end, outcome);
  if (result instanceof PubSubError) throw result;
  return result as Published;
}

/** The part that sends batches. */
interface Batches {
  sendAll(
    driver: Driver,
    items: readonly Prepared[],
    options: PublishOptions,
    end: number,
    hasTurn: boolean,
  ): Promise<(Published | PubSubError)[]>;
}

/**
 * @internal Publish several messages, with their values at the call; see `PubSub.publishMany`.
 *
 * @param batches Loads the part that sends them.
 */
export async function publishMany(
  driver: Driver,
  messages: readonly unknown[],
  options: PublishManyOptions,
  batches: () => Promise<Batches>,
): Promise<(Published | PubSubError)[]> {
  const { maxPayload } = driver;
  if (typeof Object(messages)[Symbol.iterator] !== 'function') {
    return (await driver.part(PARTS.arguments(), options)).refuseMany(messages);
  }
  const items: Prepared[] = [];
  for (const given of messages) {
    const [topic, message] =
      Array.isArray(given) && given.length === 2 ? given : [undefined, given];
    const item = prepare(topic, message, maxPayload);
    if (item) items.push(item);
    else {
      const { refuseMessage } = await driver.part(PARTS.arguments(), options);
      const at = DEVELOPMENT ? { item: items.length } : undefined;
      refuseMessage(topic, message, maxPayload, at);
    }
  }
  const end = driver.clock.now() + driver.timeoutOf(options.timeout);
  const enter = (part: Batches) => part.sendAll(driver, items, options, end, true);
  return inTurn(driver, options, enter, batches());
}

/**
 * @internal Publish over the connection or HTTP.
 *
 * @param batch In one frame, with one result per message.
 * @param hasTurn Earlier publishes have entered the queue.
 */
export function enter(
  driver: Driver,
  items: readonly Prepared[],
  options: PublishOptions,
  end: number,
  batch?: boolean,
  hasTurn?: boolean,
): Promise<Outcome> {
  const { signal, via } = options;
  signal?.throwIfAborted();
  // A plain HIP-56 peer does not acknowledge publishes on a socket, but answers a request.
  const certain = via === 'rest';
  if (certain || (via !== 'socket' && driver.peer?.acks === false)) {
    const request = driver
      .part(driver.http(), options)
      .then((api) => api.publish(items, options, certain))
      .then(
        (outcome) =>
          outcome ?? enter(driver, items, { ...options, via: 'socket' }, end, batch, hasTurn),
      );
    driver.requests = Promise.allSettled([driver.requests, request]).then(() => {});
    return request;
  }
  driver.connect();
  return !hasTurn && (driver.turn || lacksPolicies(driver, options))
    ? inTurn(driver, options, () => pass(driver, items, options, end, batch))
    : pass(driver, items, options, end, batch);
}

/** Pass messages to the session. */
function pass(
  driver: Driver,
  items: readonly Prepared[],
  { key, background, signal }: PublishOptions,
  end: number,
  batch: boolean | undefined,
): Promise<Outcome> {
  return driver.publish(
    {
      ref: driver.number(),
      messages: items.map(({ publication }) => publication),
      size: items.reduce((sum, { size }) => sum + size, 0),
      policy: driver.options.sendPolicy,
      key,
      batch,
      background,
    },
    end,
    signal,
  );
}

/** @internal One result per message, in order, from the outcome of a publish. */
export async function resultsOf(
  driver: Driver,
  items: readonly Prepared[],
  options: PublishOptions,
  end: number,
  outcome: Outcome,
): Promise<(Published | PubSubError)[]> {
  if (outcome.kind === 'acked') return items.map((item, n) => published(outcome.results[n], item));
  const isLate = driver.clock.now() >= end;
  const { failed } = await driver.part(PARTS.background(), options);
  return failed(driver, items, options, outcome, isLate);
}

/** Whether a publish needs the part with policies, lanes and backpressure. */
function lacksPolicies(driver: Driver, { background }: PublishOptions): boolean | undefined {
  return !driver.backpressure && (background || driver.options.sendPolicy !== 'error');
}

/**
 * Load the parts that a publish needs; later publishes wait for that, and for their turn.
 *
 * @param enter Passes the publish to the session before it returns.
 * @param loading The part for `enter`.
 */
async function inTurn<Part, Result>(
  driver: Driver,
  options: PublishOptions,
  enter: (part: Part) => Promise<Result>,
  loading?: Promise<Part>,
): Promise<Result> {
  const { turn: before } = driver;
  const policies = lacksPolicies(driver, options) ? PARTS.background() : undefined;
  const entering = driver
    .part(Promise.all([loading as Promise<Part>, policies, before]), options)
    .then(([part, policy]) => {
      if (policy) {
        driver.backpressure ??= new policy.Backpressure(driver);
        driver.session.publishes.policies ??= policy;
      }
      // Wrapped in a list, so that the turn passes before there is a result.
      return [enter(part)] as const;
    });
  // A failed publish only gives up its own turn, not earlier ones.
  const turn = Promise.allSettled([before, entering]).then(() => {
    if (driver.turn === turn) driver.turn = undefined;
  });
  driver.turn = turn;
  const [result] = await entering;
  return result;
}

/** The result of one publish for the program. */
function published(result: PublishResult = {}, item: Prepared): Published | PubSubError {
  const { error, id = item.id, timestamp, seq, duplicate = false } = result;
  if (error) return rejected(error, item.publication.topic, item.id);
  return { id, timestamp, seq, duplicate };
}
