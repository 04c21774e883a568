/**
 * Check that a webhook comes from your Hanzo PubSub server.
 *
 *     const seen = new SeenWebhooks();
 *
 *     async function receive(request: Request): Promise<Response> {
 *       const body = new Uint8Array(await request.arrayBuffer());
 *       const delivery = await verify(body, request.headers, secret);
 *       if (seen.isNew(delivery.id)) for (const { event, topic, data } of delivery.events) …
 *       return new Response(null, { status: 204 });
 *     }
 *
 * The server signs each request according to Standard Webhooks (https://www.standardwebhooks.com).
 * Needs `crypto.subtle`: Node 20 or later, Deno, Bun, workers.
 */

import { DEVELOPMENT } from '../build.js';
import { InvalidOption, PubSubError } from '../errors.js';
import { checkNames, checkNumber, kind } from '../settings/checks.js';

/** Maximum difference of the two clocks in milliseconds, including the transport. */
const TOLERANCE = 300_000;

const SECRET_REMEDY = "Pass the `secret` of the webhook in the server's settings.";

/** The request is not a valid, recent webhook of this server. */
export class InvalidWebhook extends PubSubError {
  /** The HTTP status for your response: 401, or 400 for a body that is not a batch of events. */
  readonly status: 400 | 401;

  constructor(message: string, field: string, remedy: string, status: 400 | 401 = 401) {
    super('invalid_webhook', message, { field, remedy });
    Object.defineProperty(this, 'name', { value: 'InvalidWebhook' });
    this.status = status;
  }
}

/** An event of a webhook. */
export interface WebhookEvent {
  /**
   * `publish`, `join`, `update`, `leave`, `subscribe`, `unsubscribe`, or for clients of the event
   * stream `pubsub.subscribed`, `pubsub.unsubscribed`, `pubsub.published`.
   */
  readonly event: string;
  /** The topic, or the pattern of a subscription. */
  readonly topic: string;
  /** Time of the event by the server's clock, in Unix milliseconds. */
  readonly time: number;
  /**
   * The envelope of a `publish`, or the presence message of `join`, `update` and `leave`. For the
   * other events, an object with their fields.
   */
  readonly data: unknown;
}

/** A verified request: a batch of events in the order in which they happened. */
export interface WebhookDelivery {
  /** Id of the batch, the same for each delivery attempt. Pass it to `SeenWebhooks.isNew`. */
  readonly id: string;
  /** When the server sent this attempt, in Unix milliseconds. */
  readonly sentAt: number;
  /** At least one event, in the order in which they happened. */
  readonly events: readonly WebhookEvent[];
}

/** Headers of `fetch`, of Node's `http` or of Express. */
export type WebhookHeaders =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** Options of `verify`. */
export interface VerifyOptions {
  /**
   * Maximum difference between `webhook-timestamp` and `now`, in milliseconds above 0; default
   * 300,000.
   */
  readonly tolerance?: number | undefined;
  /** Unix milliseconds; default: the clock of this machine. */
  readonly now?: number | undefined;
}

/**
 * Check the signature and the age of a request, and read its events.
 *
 * @param body The raw body, before anything parses it.
 * @param headers The headers of the request.
 * @param secret The `secret` of the webhook in the server's settings. During a rotation, pass
 *   several: `verify` tries each.
 * @throws InvalidWebhook A header is missing, the signature does not match, the request is too old
 *   or too new, or the body is not a batch of events. Respond with its `status`.
 * @throws InvalidOption `secret` is missing or empty, or starts with `whsec_` but is not base64
 *   after it, `headers` is not an object, or `tolerance` is not above 0.
 */
export async function verify(
  body: Uint8Array | string,
  headers: WebhookHeaders,
  secret: string | readonly string[],
  options: VerifyOptions = {},
): Promise<WebhookDelivery> {
  if (DEVELOPMENT) checkNames('options', options, ['tolerance', 'now']);
  const { tolerance = TOLERANCE, now = Date.now() } = options;
  checkTolerance(tolerance);
  const secrets: readonly string[] = Array.isArray(secret) ? secret : [secret];
  if (!secrets.length) throw invalidSecret('is empty');
  const keys = await Promise.all(secrets.map(keyOf));
  if (typeof headers !== 'object' || !headers)
    throw wrong(
      'headers',
      `is ${kind(headers)}, not an object`,
      'Pass the headers of the request.',
    );
  const id = header(headers, 'webhook-id');
  const stamp = header(headers, 'webhook-timestamp');
  const given = header(headers, 'webhook-signature');
  if (!/^\d{1,12}$/.test(stamp))
    throw new InvalidWebhook(
      'The header webhook-timestamp is not a number of seconds.',
      'webhook-timestamp',
      'Answer with 401: the sender is not a Hanzo PubSub server.',
    );
  const bytes = bytesOf(body);
  // A framework may have parsed it, or not have read it because of its type.
  if (!bytes)
    throw new InvalidWebhook(
      'The body is not the bytes of the request.',
      'body',
      'Pass the raw body as it arrived, before anything parses it.',
      400,
    );
  const signed = signedBytes(id, stamp, bytes);
  if (!(await matches(keys, signaturesOf(given), signed)))
    throw new InvalidWebhook(
      'The signature does not match the body.',
      'webhook-signature',
      "Pass the raw body as it arrived, and the secret of this webhook's settings.",
    );
  // Check the time after the signature, so that a stranger cannot find out how this clock is set.
  const sentAt = Number(stamp) * 1000;
  const age = now - sentAt;
  // Also if `now` is not a number.
  if (!(Math.abs(age) <= tolerance))
    throw new InvalidWebhook(
      `The request is ${Math.round(Math.abs(age) / 1000)} s ${age > 0 ? 'old' : 'ahead of this clock'}; the tolerance is ${tolerance / 1000} s.`,
      'webhook-timestamp',
      'Synchronize the clocks of both machines; an old request may be a replay.',
    );
  return { id, sentAt, events: eventsOf(bytes) };
}

/** Options of `sign`. */
export interface WebhookSignOptions {
  /** The id of the delivery; not empty. */
  readonly id: string;
  /** Unix milliseconds from 0 to 999,999,999,999,999; truncated to a whole second. */
  readonly sentAt: number;
}

/**
 * Create the three headers of a webhook, for tests of your receiver.
 *
 * @throws InvalidOption An argument has a wrong type or is out of range, or `secret` is empty or not
 *   base64 after `whsec_`; `field` names it.
 */
export async function sign(
  body: Uint8Array | string,
  secret: string,
  options: WebhookSignOptions,
): Promise<Record<'webhook-id' | 'webhook-timestamp' | 'webhook-signature', string>> {
  checkNames('options', options, ['id', 'sentAt']);
  const { id, sentAt } = options;
  const bytes = bytesOf(body);
  if (!bytes)
    throw wrong('body', `is ${kind(body)}, not bytes or a string`, 'Pass the body that is sent.');
  if (typeof id !== 'string' || !id)
    throw wrong(
      'id',
      id === '' ? 'is empty' : `is ${kind(id)}, not a string`,
      'Pass the id of the delivery.',
    );
  checkNumber('sentAt', sentAt, [0, 1e15 - 1, 'milliseconds']);
  const stamp = String(Math.floor(sentAt / 1000));
  const digest = await crypto.subtle.sign(
    'HMAC',
    await keyOf(secret),
    signedBytes(id, stamp, bytes),
  );
  const signature = btoa(String.fromCharCode(...new Uint8Array(digest)));
  return {
    'webhook-id': id,
    'webhook-timestamp': stamp,
    'webhook-signature': `v1,${signature}`,
  };
}

/**
 * Remembers the ids of deliveries, so that you process a repeated one once.
 *
 * The server repeats a delivery if no response arrived. An id is remembered for twice `tolerance`,
 * which is as long as `verify` accepts its request. The ids are in the memory of this process;
 * several processes need a shared store.
 */
export class SeenWebhooks {
  readonly #ids = new Map<string, number>();
  readonly #kept: number;

  /**
   * @param tolerance The milliseconds that you pass to `verify`; default 300,000.
   * @throws InvalidOption `tolerance` is not above 0.
   */
  constructor(tolerance: number = TOLERANCE) {
    checkTolerance(tolerance);
    this.#kept = 2 * tolerance;
  }

  /** Number of ids in memory. */
  get size(): number {
    return this.#ids.size;
  }

  /**
   * Remember an id, and return whether it is new. Call it only for requests that `verify` has
   * accepted.
   */
  isNew(id: string, now: number = Date.now()): boolean {
    for (const [oldest, since] of this.#ids) {
      if (since >= now - this.#kept) break;
      this.#ids.delete(oldest);
    }
    if (this.#ids.has(id)) return false;
    this.#ids.set(id, now);
    return true;
  }
}

type Bytes = Uint8Array<ArrayBuffer>;

function checkTolerance(tolerance: number): void {
  // Also if it is not a number, with which every age would be accepted.
  if (!(tolerance > 0)) throw wrong('tolerance', `is ${tolerance} ms`, 'Pass more than 0.');
}

function header(headers: WebhookHeaders, name: string): string {
  const value = typeof headers.get === 'function' ? headers.get(name) : plain(headers, name);
  if (typeof value === 'string' && value !== '') return value;
  throw new InvalidWebhook(
    `The header ${name} is missing.`,
    name,
    'Pass all headers of the request, or answer with 401: it is not signed.',
  );
}

/** Read a header from a plain object, ignoring case. */
function plain(headers: object, name: string): unknown {
  for (const [key, value] of Object.entries(headers))
    if (key.toLowerCase() === name) return Array.isArray(value) ? value[0] : value;
  return undefined;
}

function signedBytes(id: string, stamp: string, body: Uint8Array): Bytes {
  const head = new TextEncoder().encode(`${id}.${stamp}.`);
  const signed = new Uint8Array(head.length + body.length);
  signed.set(head);
  signed.set(body, head.length);
  return signed;
}

function decode(base64: string): Bytes | undefined {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function bytesOf(body: unknown): Uint8Array | undefined {
  if (typeof body === 'string') return new TextEncoder().encode(body);
  if (!ArrayBuffer.isView(body)) return undefined;
  return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
}

function wrong(field: string, problem: string, remedy: string): InvalidOption {
  return new InvalidOption(`${field} ${problem}.`, { field, remedy });
}

function invalidSecret(problem: string): InvalidOption {
  return wrong('secret', problem, SECRET_REMEDY);
}

async function keyOf(secret: unknown): Promise<CryptoKey> {
  // A variable that is not set is often passed as undefined.
  if (typeof secret !== 'string') throw invalidSecret(`is ${kind(secret)}, not a string`);
  if (!secret) throw invalidSecret('is empty');
  const marked = secret.startsWith('whsec_');
  const bytes = marked ? decode(secret.slice('whsec_'.length)) : new TextEncoder().encode(secret);
  if (!bytes?.length) throw invalidSecret('is not base64 after whsec_');
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  return crypto.subtle.importKey('raw', bytes, algorithm, false, ['sign', 'verify']);
}

/** The signatures of the supported version. The header has several during a rotation. */
function signaturesOf(text: string): Bytes[] {
  const found = [];
  for (const each of text.split(' ').slice(0, 16)) {
    const bytes = each.startsWith('v1,') ? decode(each.slice('v1,'.length)) : undefined;
    if (bytes?.length) found.push(bytes);
  }
  return found;
}

async function matches(keys: CryptoKey[], signatures: Bytes[], signed: Bytes): Promise<boolean> {
  for (const key of keys)
    for (const signature of signatures)
      if (await crypto.subtle.verify('HMAC', key, signature, signed)) return true;
  return false;
}

function eventsOf(body: Uint8Array): readonly WebhookEvent[] {
  try {
    const { events } = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) as {
      readonly events: readonly WebhookEvent[];
    };
    if (!events.length) throw new TypeError('no events');
    return events.map(({ event, topic, time, data }) => {
      if (
        typeof event !== 'string' ||
        typeof topic !== 'string' ||
        !Number.isFinite(time) ||
        data === undefined
      )
        throw new TypeError('no event');
      return { event, topic, time, data };
    });
  } catch {
    throw new InvalidWebhook(
      'The body is not a batch of events.',
      'body',
      'Point the webhook of a Hanzo PubSub server at this address, and nothing else.',
      400,
    );
  }
}
