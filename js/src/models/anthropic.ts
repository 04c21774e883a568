/** Streams of `@anthropic-ai/sdk`. */

import type { Piece } from '../streams/parts.js';
import { Pieces } from './pieces.js';
import { get, ModelError, type ModelEvents, type ModelSource, sourceOf, textIn } from './source.js';

/** An event of the Messages API, by the field that names it. */
export interface AnthropicEvent {
  readonly type: string;
}

/** Content blocks that call a tool. */
const CALLS = ['tool_use', 'server_tool_use', 'mcp_tool_use'];

/**
 * The pieces of a stream of `@anthropic-ai/sdk`: of `messages.create` or `messages.stream`.
 *
 *     await w.pipe(fromAnthropic(anthropic.messages.stream({ model, max_tokens, messages })));
 *
 * Text, reasoning, citations and tool calls become parts; the stop reason and the usage go into the
 * end of the stream. When a reader cancels, the request is aborted.
 *
 * @throws ModelError While it is read: the model reported an error, or the stream ended without a
 *   finish reason.
 */
export function fromAnthropic(stream: AsyncIterable<AnthropicEvent>): ModelSource {
  return sourceOf(stream, new AnthropicEvents());
}

class AnthropicEvents implements ModelEvents<AnthropicEvent> {
  finishReason: string | undefined;
  usage: unknown;
  private readonly _pieces = new Pieces();

  read(event: AnthropicEvent): Piece[] {
    const delta = get(event, 'delta');
    switch (event.type) {
      case 'message_start':
        this.usage = get(get(event, 'message'), 'usage');
        return [];
      case 'content_block_start': {
        const block = get(event, 'content_block');
        if (!CALLS.includes(textIn(block, 'type') ?? '')) return [];
        return this._pieces.call(get(event, 'index'), get(block, 'id'), get(block, 'name'), '');
      }
      case 'content_block_delta':
        return this._block(get(event, 'index'), delta);
      case 'message_delta':
        this.finishReason = textIn(delta, 'stop_reason') ?? this.finishReason;
        this.usage = { ...(this.usage ?? {}), ...(get(event, 'usage') ?? {}) };
        return [];
      case 'error':
        throw new ModelError(textIn(get(event, 'error'), 'message') ?? 'The model failed.');
      default:
        return [];
    }
  }

  private _block(index: unknown, delta: unknown): Piece[] {
    const { _pieces: pieces } = this;
    switch (get(delta, 'type')) {
      case 'text_delta':
        return pieces.text(get(delta, 'text'));
      case 'thinking_delta':
        return pieces.reasoning(get(delta, 'thinking'), index);
      case 'input_json_delta':
        return pieces.call(index, undefined, undefined, get(delta, 'partial_json'));
      case 'citations_delta': {
        const citation = get(delta, 'citation');
        return pieces.citation(get(citation, 'url'), get(citation, 'title'));
      }
      default:
        return [];
    }
  }
}
