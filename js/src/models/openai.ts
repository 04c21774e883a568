/** Streams of `openai`, and of servers with OpenAI's API. */

import type { Piece } from '../streams/parts.js';
import { Pieces } from './pieces.js';
import {
  get,
  listIn,
  ModelError,
  type ModelEvents,
  type ModelSource,
  sourceOf,
  textIn,
} from './source.js';

/** An event of the Responses API, or a chunk of Chat Completions, by the fields that differ. */
export type OpenAIEvent = { readonly type: string } | { readonly choices: readonly unknown[] };

/** Items of an answer that call a tool, with the field that has their arguments. */
const CALLS: Readonly<Record<string, string>> = {
  function_call: 'arguments',
  mcp_call: 'arguments',
  custom_tool_call: 'input',
};

/**
 * The pieces of a stream of `openai`: of the Responses API or of Chat Completions.
 *
 *     const stream = await openai.responses.create({ model, input, stream: true });
 *     await w.pipe(fromOpenAI(stream));
 *
 * Text, reasoning, citations and tool calls become parts; the finish reason and the usage go into
 * the end of the stream. When a reader cancels, the request is aborted.
 *
 * @throws ModelError While it is read: the model reported an error, or the stream ended without a
 *   finish reason.
 */
export function fromOpenAI(stream: AsyncIterable<OpenAIEvent>): ModelSource {
  return sourceOf(stream, new OpenAIEvents());
}

class OpenAIEvents implements ModelEvents<OpenAIEvent> {
  finishReason: string | undefined;
  usage: unknown;
  private readonly _pieces = new Pieces();

  read(event: OpenAIEvent): Piece[] {
    const type = textIn(event, 'type');
    return type ? this._response(type.replace(/^response\./, ''), event) : this._chunk(event);
  }

  private _chunk(chunk: unknown): Piece[] {
    const { _pieces: pieces } = this;
    this.usage = get(chunk, 'usage') ?? this.usage;
    const [choice] = listIn(chunk, 'choices');
    this.finishReason = textIn(choice, 'finish_reason') ?? this.finishReason;
    const delta = get(choice, 'delta');
    return [
      // Not from OpenAI: DeepSeek, vLLM and OpenRouter use these names.
      ...pieces.reasoning(get(delta, 'reasoning_content') ?? get(delta, 'reasoning')),
      ...pieces.text(get(delta, 'content')),
      ...pieces.text(get(delta, 'refusal')),
      ...listIn(delta, 'tool_calls').flatMap((call) => {
        const asked = get(call, 'function');
        const [name, text] = [get(asked, 'name'), get(asked, 'arguments')];
        return pieces.call(get(call, 'index'), get(call, 'id'), name, text);
      }),
    ];
  }

  private _response(type: string, event: unknown): Piece[] {
    const { _pieces: pieces } = this;
    const delta = get(event, 'delta');
    const at = get(event, 'output_index');
    switch (type) {
      case 'output_text.delta':
      case 'refusal.delta':
        return pieces.text(delta);
      case 'reasoning_text.delta':
      case 'reasoning_summary_text.delta':
        // A summary has several sections, each with its own title.
        return pieces.reasoning(delta, `${at} ${get(event, 'summary_index')}`);
      case 'output_text.annotation.added': {
        const citation = get(event, 'annotation');
        return pieces.citation(get(citation, 'url'), get(citation, 'title'));
      }
      case 'output_item.added': {
        const item = get(event, 'item');
        const field = CALLS[textIn(item, 'type') ?? ''];
        if (!field) return [];
        const id = get(item, 'call_id') ?? get(item, 'id');
        return pieces.call(at, id, get(item, 'name'), get(item, field));
      }
      case 'function_call_arguments.delta':
      case 'mcp_call_arguments.delta':
      case 'custom_tool_call_input.delta':
        return pieces.call(at, undefined, undefined, delta);
      case 'completed':
      case 'incomplete': {
        const response = get(event, 'response');
        this.usage = get(response, 'usage');
        this.finishReason = textIn(get(response, 'incomplete_details'), 'reason') ?? 'stop';
        return [];
      }
      case 'failed':
      case 'error': {
        const problem = get(get(event, 'response'), 'error') ?? event;
        throw new ModelError(textIn(problem, 'message') ?? 'The model failed.');
      }
      default:
        return [];
    }
  }
}
