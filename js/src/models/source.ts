/** The stream of a model's client as a source for `StreamWriter.pipe`. */

import type { Piece } from '../streams/parts.js';
import { checkSource } from '../streams/sources.js';

/** Pieces of one answer, with the finish reason for `pipe`. */
export interface ModelSource extends AsyncIterable<Piece> {
  /** Why the model ended; undefined before the end. */
  readonly finishReason: string | undefined;
  /** Its usage as JSON; undefined if it reported none. */
  readonly usage: unknown;
}

/** The model reported an error in the middle of its answer, or its stream was cut. */
export class ModelError extends Error {
  override readonly name = 'ModelError';
}

/** @internal Converts the events of one answer to pieces. */
export interface ModelEvents<Event> {
  readonly finishReason: string | undefined;
  readonly usage: unknown;
  /** The pieces that an event adds. */
  read(event: Event): Piece[] | Promise<Piece[]>;
}

/** Aborts the request of a stream; streams of `openai` and `@anthropic-ai/sdk` have one. */
interface Abortable {
  readonly controller?: { abort?: () => void } | undefined;
}

/**
 * @internal A source that reads `stream`.
 *
 * Leaving it aborts the request of the stream immediately, even while an event is awaited: a
 * generator would only abort after that event.
 */
export function sourceOf<Event>(
  stream: AsyncIterable<Event>,
  events: ModelEvents<Event>,
): ModelSource {
  checkSource('stream', stream);
  return {
    get finishReason() {
      return events.finishReason;
    },
    get usage() {
      return events.usage;
    },
    [Symbol.asyncIterator]() {
      const iterator = stream[Symbol.asyncIterator]();
      const ready: Piece[] = [];
      const leave = async (): Promise<IteratorResult<Piece>> => {
        (stream as Abortable).controller?.abort?.();
        await iterator.return?.();
        return { done: true, value: undefined };
      };
      return {
        async next() {
          for (;;) {
            const value = ready.shift();
            if (value !== undefined) return { done: false, value };
            const { done, value: event } = await iterator.next();
            if (done) {
              if (events.finishReason) return { done, value: undefined };
              throw new ModelError(
                'The stream of the model ended without a finish reason: it was cut.',
              );
            }
            try {
              ready.push(...(await events.read(event)));
            } catch (error) {
              await leave();
              throw error;
            }
          }
        },
        return: leave,
      };
    },
  };
}

/** @internal A field of a value that may be an object. */
export const get = (value: unknown, field: string): unknown =>
  (value as Readonly<Record<string, unknown>> | null | undefined)?.[field];

/** @internal A field that is a text. */
export function textIn(value: unknown, field: string): string | undefined {
  const found = get(value, field);
  return typeof found === 'string' && found ? found : undefined;
}

/** @internal A field that is a list; empty if there is none. */
export function listIn(value: unknown, field: string): readonly unknown[] {
  const found = get(value, field);
  return Array.isArray(found) ? found : [];
}
