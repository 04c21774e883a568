/** Names what is wrong with an answer that a program gives to a writer. */

import { DEVELOPMENT } from '../build.js';
import { fromCode, InvalidPayload, type PubSubError } from '../errors.js';
import { invalid, kind } from '../settings/checks.js';
import { isObject } from '../wire/guard.js';
import { checkData } from '../wire/payloads.js';

/**
 * @internal Reject what cannot be read piece by piece, for example a whole answer.
 *
 * @param field Name of the argument.
 * @param isPlain Whether a plain iterable is fine, too.
 * @throws InvalidOption It is not iterable.
 */
export function checkSource(field: string, source: unknown, isPlain = false): void {
  const given = Object(source);
  if (given[Symbol.asyncIterator] || (isPlain && given[Symbol.iterator])) return;
  const remedy = DEVELOPMENT ? remedyFor(given) : '';
  throw invalid(field, `is ${kind(source)}, not an asynchronous iterable`, remedy);
}

function remedyFor(source: { readonly fullStream?: unknown; readonly then?: unknown }): string {
  if (typeof source === 'function') return 'Call it, and pass what it returns.';
  // Of `streamText`, and of the client of a model.
  if (source.fullStream) return 'Pass its `fullStream` to `fromAISDK`.';
  if (source.then) return 'Await it first.';
  return 'Request the answer of the model with `stream: true`, or pass its text to `write`.';
}

/** @internal The error for a piece that the writer rejects; does not show it. */
export function refusal(code: string, piece: unknown, topic: string): PubSubError {
  if (code === 'payload_too_large')
    return fromCode(code, 'The answer is larger than 196,608 bytes as JSON.', {
      topic,
      remedy: 'Store long results elsewhere, and write a part with their URL.',
    });
  try {
    if (isObject(piece) && 'type' in piece) checkData(piece, Infinity, topic, 'piece');
  } catch (error) {
    return error as PubSubError;
  }
  return new InvalidPayload(
    'A stream takes text of whole characters, parts with a `type`, and {text}.',
    { topic, remedy: 'Decode bytes incrementally, so that no character is cut.', field: 'piece' },
  );
}
