/** What `streamText` of the AI SDK gives, as pieces for `StreamWriter.pipe`. */

import { DEVELOPMENT } from '../build.js';
import { InvalidPayload, PayloadTooLarge } from '../errors.js';
import { Pieces } from '../models/pieces.js';
import { type ModelEvents, type ModelSource, sourceOf } from '../models/source.js';
import { checkNames } from '../settings/checks.js';
import type { Piece } from '../streams/parts.js';

/** Maximum characters of the data URL of a file: an answer has a limit, and so has a message. */
const INLINE = 65_536;

/** A file of a model, as the AI SDK gives it. */
export interface ModelFile {
  readonly mediaType: string;
  readonly base64: string;
  readonly uint8Array: Uint8Array;
}

/** Options of `fromAISDK`. */
export interface AISDKOptions {
  /**
   * Stores a file of the model, and returns its address. By default, a file becomes a data URL of
   * at most 65,536 characters.
   */
  readonly fileUrl?: ((file: ModelFile) => string | Promise<string>) | undefined;
}

/** An event of `fullStream`, by the fields that are read. */
type StreamPart = { readonly type: string; readonly [field: string]: unknown };

/**
 * The pieces of `fullStream`: text, reasoning, tool calls with their approvals and results, sources
 * and files. A part `step` separates the steps of an answer.
 *
 *     await w.pipe(fromAISDK(streamText({ model, prompt }).fullStream));
 *
 * @throws Error The failure of the model.
 * @throws ModelError The stream ended without `finish`.
 * @throws PayloadTooLarge A file is too large for a message, and there is no `fileUrl`.
 */
export function fromAISDK(
  stream: AsyncIterable<{ readonly type: string }>,
  options: AISDKOptions = {},
): ModelSource {
  if (DEVELOPMENT) checkNames('options', options, ['fileUrl']);
  return sourceOf(stream, new AISDKEvents(options));
}

class AISDKEvents implements ModelEvents<StreamPart> {
  finishReason: string | undefined;
  usage: unknown;
  private readonly _pieces = new Pieces();
  private _steps = 0;

  constructor(private readonly _options: AISDKOptions) {}

  read(event: StreamPart): Piece[] | Promise<Piece[]> {
    const { _pieces: pieces } = this;
    const { type, id, text } = event;
    switch (type) {
      case 'start-step':
        this._steps += 1;
        return this._steps > 1 ? pieces.whole({ type: 'step' }) : [];
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
      case 'tool-approval-request': {
        const { approvalId, toolCall, signature } = event;
        const more = signature === undefined ? {} : { signature };
        return pieces.whole({ type, id: Object(toolCall).toolCallId, approvalId, ...more });
      }
      case 'tool-output-denied':
        return pieces.whole({ type: 'tool-result', id: event['toolCallId'], denied: true });
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
      case 'file':
        return this._file(event['file'] as ModelFile);
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

  private async _file(file: ModelFile): Promise<Piece[]> {
    const { fileUrl = inline } = this._options;
    const { mediaType } = file;
    return this._pieces.whole({ type: 'file', url: await fileUrl(file), mediaType });
  }
}

/** The data URL of a file. */
function inline({ mediaType, base64 }: ModelFile): string {
  const url = `data:${mediaType};base64,${base64}`;
  if (url.length > INLINE)
    throw new PayloadTooLarge(`A file of the model has ${base64.length} characters in base64.`, {
      remedy: 'Pass `fileUrl` to `fromAISDK`: store the file there, and return its address.',
      field: 'file',
    });
  return url;
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
