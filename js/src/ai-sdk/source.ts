/** What `streamText` of the AI SDK gives, as pieces for `StreamWriter.pipe`. */

import type { Part, Piece } from '../streams/parts.js';

/** Pieces of one answer; `pipe` reads from it why the model ended. */
export interface ModelSource extends AsyncIterable<Piece> {
  /** Why the model ended; undefined where it has not said. */
  readonly finishReason: string | undefined;
  /** What it counted; undefined where it has not said. */
  readonly usage: unknown;
}

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
  const events = new Events();
  return {
    get finishReason() {
      return events.finishReason;
    },
    get usage() {
      return events.usage;
    },
    async *[Symbol.asyncIterator]() {
      for await (const event of stream) yield* events.take(event);
    },
  };
}

class Events {
  finishReason: string | undefined;
  usage: unknown;
  private _open = '';
  private readonly _calls = new Set<unknown>();

  take(event: StreamPart): Piece[] {
    const { type, id, text } = event;
    switch (type) {
      case 'text-delta':
        this._open = 'text';
        return text ? [String(text)] : [];
      case 'reasoning-delta':
        return this._grow('reasoning', { type: 'reasoning' }, text);
      case 'tool-input-start':
        this._calls.add(id);
        return this._grow(`call ${id}`, { type: 'tool-call', id, name: event['toolName'] }, '');
      case 'tool-input-delta':
        return this._grow(`call ${id}`, { type: 'tool-call', id }, event['delta']);
      case 'tool-call': {
        const { toolCallId, toolName: name, input } = event;
        if (this._calls.has(toolCallId)) return [];
        return this._whole({ type, id: toolCallId, name, text: JSON.stringify(input ?? {}) });
      }
      case 'tool-result':
        return this._whole({ type, id: event['toolCallId'], output: event['output'] });
      case 'source': {
        const { url, title } = event;
        return url ? this._whole({ type: 'citation', url, ...(title ? { title } : {}) }) : [];
      }
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

  private _whole(part: Part): Piece[] {
    this._open = '';
    return [part];
  }

  private _grow(key: string, part: Part, grown: unknown): Piece[] {
    const text = String(grown ?? '');
    const isSame = this._open === key;
    this._open = key;
    return isSame ? [{ text }] : [{ ...part, text }];
  }
}
