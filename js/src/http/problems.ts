/** The meaning of an HTTP error. */

import { DEVELOPMENT } from '../build.js';
import { fromCode, type PubSubError } from '../errors.js';
import { CODES } from '../generated/errors.js';
import { withoutToken } from '../settings/checks.js';
import { isObject, type JsonObject } from '../wire/guard.js';
import type { Doubt } from './address.js';
import { statusOf } from './request.js';

/** Codes of statuses without a code in the body. */
const MEANINGS: Readonly<Record<number, string>> = {
  400: 'invalid_option',
  401: 'unauthenticated',
  403: 'forbidden',
  404: 'not_found',
  405: 'unsupported',
  408: 'timeout',
  409: 'conflict',
  413: 'payload_too_large',
  415: 'unsupported',
  422: 'invalid_payload',
  429: 'rate_limited',
  501: 'unsupported',
  502: 'unavailable',
  503: 'unavailable',
  504: 'unavailable',
};

/** The request, and what may be wrong with its address if no PubSub server answered. */
export interface Asked extends Doubt {
  /** Who answered. */
  readonly host?: string;
  /** The token of the request, which some servers quote. */
  readonly token?: string;
  readonly topic?: string | undefined;
}

const WAIT_MAX = 3_600_000;

/** With this status, libraries for WebSockets refuse other requests. */
const UPGRADE = 426;

/**
 * The error for an HTTP error.
 *
 * Reads `application/problem+json` (RFC 9457) and the formats of plain peers: `{code, message}`,
 * `{error: {...}}`, `{error: "..."}`, `{detail: "..."}`, or nothing readable.
 *
 * @param wall Unix milliseconds, for dates in `Retry-After`.
 */
export function readError(
  response: Response,
  body: string,
  wall: number,
  { host = 'The server', token, topic, problem, remedy: own }: Asked = {},
): PubSubError {
  const status = statusOf(response);
  const whole = parse(body) ?? {};
  const fields = isObject(whole['error']) ? whole['error'] : whole;
  const [word, given, detail, message, title, remedy, about, field] = [
    whole['error'],
    ...['code', 'detail', 'message', 'title', 'remedy', 'topic', 'field'].map((n) => fields[n]),
  ].map((value) => withoutToken(wordOf(value) ?? '', token) || undefined);
  const usual = MEANINGS[status] ?? (status >= 500 ? 'internal' : 'invalid_frame');
  let code = given ?? (CODES.has(word ?? '') ? word : undefined);
  const explanation = detail ?? message ?? (word === code ? undefined : word) ?? title;
  if (code === undefined || (!CODES.has(code) && /^\d+$/.test(code))) code = usual;
  const isElsewhere =
    given === undefined && (usual === 'not_found' || (DEVELOPMENT && status === UPGRADE));
  const answer =
    DEVELOPMENT && status >= 400 && !isPage(response, body)
      ? `HTTP ${status}${isElsewhere && problem ? `: ${problem}` : ' without saying why'}`
      : describeAnswer(response, body);
  const nothing = Object.keys(fields).length ? undefined : `${host} answered ${answer}.`;
  const wait = fields['retry_after_ms'];
  return fromCode(code, explanation ?? nothing, {
    remedy: remedy ?? (isElsewhere ? own : undefined),
    topic: about ?? topic,
    field,
    retryAfter:
      typeof wait === 'number'
        ? limited(wait)
        : retryAfterOf(response.headers.get('Retry-After'), wall),
  });
}

/** A description of the answer: status and, in development, content type; never the content. */
export function describeAnswer(response: Response, body: string): string {
  const status = statusOf(response);
  if (!DEVELOPMENT) return `HTTP ${status}`;
  const [kind = ''] = (response.headers.get('Content-Type') ?? '').split(';');
  const what =
    status >= 300 && status < 400
      ? 'a redirect, which is not followed'
      : isPage(response, body)
        ? 'an HTML page'
        : !body.trim()
          ? 'an empty body'
          : /^\s*[[{]/.test(body)
            ? 'JSON'
            : kind.trim().slice(0, 64) || 'content without a type';
  return `HTTP ${status} and ${what}`;
}

/** Whether an answer is an HTML page, which a PubSub server does not send. */
export function isPage(response: Response, body: string): boolean {
  return /html/i.test(response.headers.get('Content-Type') ?? '') || /^\s*</.test(body);
}

/** The object in a JSON text; undefined for anything else. */
export function parse(body: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** A word, or a number in words. */
export function wordOf(value: unknown): string | undefined {
  if (typeof value === 'number') return String(value);
  return typeof value === 'string' && value ? value : undefined;
}

/**
 * Read `Retry-After` (RFC 9110, 10.2.3): seconds or a date.
 *
 * @param value The header, if there was one.
 * @param wall Current Unix milliseconds.
 * @returns Milliseconds from now, at most an hour; undefined for other values.
 */
function retryAfterOf(value: string | null, wall: number): number | undefined {
  const text = value?.trim();
  if (!text) return undefined;
  const wait = /^[\d.]+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - wall;
  return Number.isNaN(wait) ? undefined : limited(wait);
}

/** A wait that a server requests, from 0 to an hour. */
function limited(wait: number): number {
  return Math.min(Math.max(wait, 0), WAIT_MAX);
}
