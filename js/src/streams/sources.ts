/** Names what is wrong with an answer that a program gives to a writer. */

import { DEVELOPMENT } from '../build.js';
import { fromCode, InvalidPayload, type PubSubError } from '../errors.js';
import { invalid, kind } from '../settings/checks.js';
import { isObject } from '../wire/guard.js';
import { checkData } from '../wire/payloads.js';
import { isPiece } from './pieces.js';

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
  const [text, remedy] = DEVELOPMENT ? explain(piece) : ['This piece cannot be sent.'];
  return new InvalidPayload(text, { topic, remedy, field: 'piece' });
}

/** What is wrong with a piece, and what to do about it. */
function explain(piece: unknown): [problem: string, remedy: string] {
  const problem = `The piece is ${kind(piece)}, not text or a part.`;
  if (isPiece(piece))
    return [
      'The text has half of a surrogate pair.',
      'Decode bytes incrementally, so that no character is cut.',
    ];
  if (ArrayBuffer.isView(piece))
    return [problem, 'Decode it incrementally, for example with `TextDecoderStream`.'];
  if (isObject(piece))
    return [
      'The part has neither a `type` nor a `text`, or one of them is not text.',
      'Write a new part as {type}, or {text} to continue the last one. Pass the stream of a model to `pipe` with `fromOpenAI` or similar.',
    ];
  return [
    problem,
    piece == null
      ? 'Skip it: models send chunks without text. `pipe(fromOpenAI(stream))` does so.'
      : 'Write its text, or pass the stream of the model to `pipe` with `fromOpenAI` or similar.',
  ];
}
