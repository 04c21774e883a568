/** What `streamText` of the AI SDK gives, as pieces for `StreamWriter.pipe`. */

import { InvalidPayload } from '../errors.js';
import { Pieces } from '../models/pieces.js';
import { type ModelEvents, type ModelSource, sourceOf } from '../models/source.js';
import type { Piece } from '../streams/parts.js';

/** An event of `fullStream`, by the fields that are read. */
type StreamPart = { readonly type: string; readonly [field: string]: unknown };

/**
 * The pieces of `fullStream`: text, reasoning, tool calls with their results, and sources.
 *
 *     await w.pipe(fromAISDK(streamText({ model, prompt }).fullStream));
 *
 * @throws What the model failed with.
 */
export function fromAISDK(stream: AsyncIterable<StreamPart>): ModelSource {
  return sourceOf(stream, new AISDKEvents());
}

class AISDKEvents implements ModelEvents<StreamPart> {
  finishReason: string | undefined;
  usage: unknown;
  private readonly _pieces = new Pieces();

  read(event: StreamPart): Piece[] {
    const { _pieces: pieces } = this;
    const { type, id, text } = event;
    switch (type) {
      case 'text-delta':
        return pieces.text(text);
      case 'reasoning-delta':
        return pieces.reasoning(text, id);
      case 'tool-input-start':
        return pieces.call(id, id, event['toolName'], '');
      case 'tool-input-delta':
        return pieces.call(id, id, undefined, event['delta']);
      case 'tool-call': {
        const { toolCallId, toolName: name, input } = event;
        if (pieces.hasCall(toolCallId)) return [];
        return pieces.whole({ type, id: toolCallId, name, text: jsonOf(input ?? {}, 'input') });
      }
      case 'tool-result':
        return pieces.whole({
          type,
          id: event['toolCallId'],
          output: JSON.parse(jsonOf(event['output'] ?? null, 'output')),
        });
      case 'tool-error':
        // As with the SDK's own responses, readers do not get the text of the error.
        return pieces.whole({
          type: 'tool-result',
          id: event['toolCallId'],
          error: 'The tool failed.',
        });
      case 'source':
        return pieces.citation(event['url'], event['title']);
      case 'finish':
        this.finishReason = event['finishReason'] as string;
        this.usage = event['totalUsage'];
        return [];
      case 'error':
        throw event['error'];
      case 'abort':
        throw new Error('The model was aborted.');
      default:
        return [];
    }
  }
}

/** The JSON of a value, as a response of the SDK would send it: a `Date` as text, for example. */
function jsonOf(value: unknown, field: string): string {
  try {
    return JSON.stringify(value) ?? 'null';
  } catch (cause) {
    throw new InvalidPayload(`The \`${field}\` of a tool is not JSON.`, {
      remedy: 'Return plain JSON from the tool, for example a number that is a bigint as a string.',
      field,
      cause,
    });
  }
}
