/** Explains why a payload is not valid; `plain.ts` checks whether it is. */

import { InvalidPayload, PayloadTooLarge } from '../errors.js';
import type { Publication } from '../generated/wire.js';
import { DEPTH_MAX, isPaired, isRecord, isSendable, sizeOf } from './plain.js';

const KEY_SHOWN = 64;

/**
 * Check a message to publish, and return its size in a queue: the bytes of JSON of `data` and
 * `meta`.
 *
 * @param publication The message to publish.
 * @param limit Maximum bytes of JSON of `data`.
 * @throws InvalidPayload `data` or `meta` is not plain JSON; `field` is the path of the invalid
 *   value.
 * @throws PayloadTooLarge `data` has more than `limit` bytes of JSON.
 */
export function checkPublication(publication: Publication, limit: number): number {
  const { topic, data, meta } = publication;
  const size = checkData(data, limit, topic);
  return meta === undefined ? size : size + checkData(meta, limit, topic, 'meta');
}

/**
 * Check one payload, and return the bytes of its compact UTF-8 JSON (see `sizeOf`).
 *
 * @param data The payload.
 * @param limit Maximum bytes of JSON.
 * @param topic Its topic, for the error.
 * @param path Its name in the error.
 * @throws InvalidPayload It is not plain JSON; `field` is the path of the invalid value in it.
 * @throws PayloadTooLarge It is over the limit.
 */
export function checkData(data: unknown, limit: number, topic?: string, path = 'data'): number {
  const found = check(data, path, 0);
  if (found) {
    const { path: field, remedy } = found;
    throw new InvalidPayload(`\`${field}\` ${found.problem}.`, { remedy, topic, field });
  }
  const size = sizeOf(data);
  if (size > limit) {
    throw new PayloadTooLarge(
      `The payload has ${inWords(size)} bytes of JSON; the limit is ${inWords(limit)}.`,
      { size, limit, topic, field: path },
    );
  }
  return size;
}

/** A number as texts show it. */
export function inWords(count: number): string {
  return count.toLocaleString('en-US');
}

interface Culprit {
  readonly path: string;
  readonly problem: string;
  readonly remedy?: string | undefined;
}

function culprit(path: string, problem: string, remedy?: string): Culprit {
  return { path, problem, remedy };
}

function check(value: unknown, path: string, depth: number): Culprit | undefined {
  switch (typeof value) {
    case 'boolean':
      return undefined;
    case 'string':
      return checkText(value, path);
    case 'number':
      if (isSendable(value)) return undefined;
      return Number.isFinite(value)
        ? culprit(path, 'does not fit in 64 bits', 'Send such a number as a string.')
        : culprit(path, 'is NaN or infinite', 'Send null, or a string.');
    case 'object':
      return value === null ? undefined : checkObject(value, path, depth);
    case 'bigint':
      return culprit(
        path,
        'is of type bigint, which JSON does not support',
        'Send such a number as a string.',
      );
    default:
      return culprit(path, `is of type ${typeof value}, which JSON does not support`);
  }
}

function checkObject(value: object, path: string, depth: number): Culprit | undefined {
  const isList = Array.isArray(value);
  if (!isList && !isRecord(value)) {
    return culprit(
      path,
      `is of type ${nameOf(value)}, which JSON does not support`,
      `${remedyFor(value)}`,
    );
  }
  // This also stops at a value that contains itself.
  if (depth >= DEPTH_MAX) {
    const shown = path.length <= KEY_SHOWN ? path : `${path.slice(0, KEY_SHOWN)}…`;
    return culprit(
      shown,
      `is nested deeper than ${DEPTH_MAX} levels`,
      'Flatten it, or remove the cycle.',
    );
  }
  if (isList) {
    for (const [n, item] of value.entries()) {
      const found = check(item, `${path}[${n}]`, depth + 1);
      if (found) return found;
    }
    return undefined;
  }
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    const found =
      checkText(key, path) ?? check(item, `${path}.${key.slice(0, KEY_SHOWN)}`, depth + 1);
    if (found) return found;
  }
  return undefined;
}

function nameOf(value: object): string {
  const maker: unknown = Reflect.get(value, 'constructor');
  return typeof maker === 'function' && maker.name ? maker.name : 'Object';
}

function checkText(text: string, path: string): Culprit | undefined {
  if (isPaired(text)) return undefined;
  return culprit(
    path,
    'has an unpaired surrogate, which UTF-8 cannot encode',
    'Clean it with text.toWellFormed().',
  );
}

function remedyFor(value: object): string {
  if (value instanceof Set) return 'Send an array, sorted if the order matters.';
  if (value instanceof Map) return 'Send Object.fromEntries(…) of it.';
  if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return 'Send base64 text.';
  if (value instanceof Date) return 'Send toISOString(), or Unix milliseconds.';
  return 'Send a plain object.';
}
