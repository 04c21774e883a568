/** Parts of an answer as chunks of a message of the AI SDK; pure. */

import type { Part } from '../streams/parts.js';
import type { StreamEnd } from '../streams/reader.js';

const REASONS: readonly string[] = ['stop', 'length', 'content-filter', 'tool-calls', 'error'];

/** A `UIMessageChunk` of the AI SDK, of the kinds that an answer consists of. */
export type ChatChunk =
  | { readonly type: 'start'; readonly messageId: string }
  | { readonly type: 'text-start' | 'text-end'; readonly id: string }
  | { readonly type: 'text-delta'; readonly id: string; readonly delta: string }
  | { readonly type: 'reasoning-start' | 'reasoning-end'; readonly id: string }
  | { readonly type: 'reasoning-delta'; readonly id: string; readonly delta: string }
  | { readonly type: 'tool-input-start'; readonly toolCallId: string; readonly toolName: string }
  | {
      readonly type: 'tool-input-delta';
      readonly toolCallId: string;
      readonly inputTextDelta: string;
    }
  | {
      readonly type: 'tool-input-available';
      readonly toolCallId: string;
      readonly toolName: string;
      readonly input: unknown;
    }
  | {
      readonly type: 'tool-input-error';
      readonly toolCallId: string;
      readonly toolName: string;
      readonly input: unknown;
      readonly errorText: string;
    }
  | {
      readonly type: 'tool-output-available';
      readonly toolCallId: string;
      readonly output: unknown;
    }
  | {
      readonly type: 'tool-output-error';
      readonly toolCallId: string;
      readonly errorText: string;
    }
  | { readonly type: 'tool-output-denied'; readonly toolCallId: string }
  | {
      readonly type: 'tool-approval-request';
      readonly approvalId: string;
      readonly toolCallId: string;
      readonly signature?: string;
    }
  | {
      readonly type: 'source-url';
      readonly sourceId: string;
      readonly url: string;
      readonly title?: string;
    }
  | { readonly type: 'file'; readonly url: string; readonly mediaType: string }
  | { readonly type: 'start-step' | 'finish-step' }
  | { readonly type: `data-${string}`; readonly id: string; readonly data: unknown }
  | { readonly type: 'finish'; readonly finishReason: FinishReason }
  | { readonly type: 'abort'; readonly reason: string }
  | { readonly type: 'error'; readonly errorText: string };

type FinishReason = 'stop' | 'length' | 'content-filter' | 'tool-calls' | 'error' | 'other';

/** The chunks of one message so far. */
export class Chunks {
  private _shown: Part[] = [];
  /** Tool calls whose arguments may still grow: their names and texts, by id. */
  private readonly _calls = new Map<string, { readonly toolName: string; text: string }>();
  private _tries = 0;

  /** @param _message Id of the message. */
  constructor(private readonly _message: string) {}

  /** The message begins. */
  begin(): ChatChunk[] {
    return [{ type: 'start', messageId: this._message }];
  }

  /** The missing chunks of an answer so far; a restarted answer follows the existing chunks. */
  show(parts: readonly Part[]): ChatChunk[] {
    const chunks: ChatChunk[] = [];
    const isLonger = this._shown.every((part, n) => continues(parts[n], part));
    if (!isLonger) {
      chunks.push(...this._close());
      this._shown = [];
      this._tries += 1;
    }
    for (const [n, part] of parts.entries()) {
      const before = this._shown[n];
      if (!before) {
        chunks.push(...this._close(part), ...this._opened(part, n));
        this._shown.push({ ...part, text: '' });
      }
      const grown = (part.text ?? '').slice(before?.text?.length ?? 0);
      if (grown) chunks.push(...this._grown(part, n, grown));
      this._shown[n] = part;
    }
    return chunks;
  }

  /** The message ends. */
  end(end: StreamEnd): ChatChunk[] {
    const chunks = this._close();
    if (end.kind === 'done') {
      const reason = end.reason.replaceAll('_', '-');
      const finishReason = (REASONS.includes(reason) ? reason : 'other') as FinishReason;
      chunks.push({ type: 'finish', finishReason });
    } else if (end.by || end.reason === 'cancelled') {
      chunks.push({ type: 'abort', reason: end.reason });
    } else {
      chunks.push({ type: 'error', errorText: `The answer ended early: ${end.reason}` });
    }
    return chunks;
  }

  private _id(n: number): string {
    return `${this._message}-${this._tries}-${n}`;
  }

  private _opened(part: Part, n: number): ChatChunk[] {
    const id = this._id(n);
    switch (part.type) {
      case 'text':
      case 'reasoning':
        return [{ type: `${part.type}-start`, id }];
      case 'tool-call': {
        const toolCallId = callOf(part);
        // A model may return to a call that it began before another one.
        if (this._calls.has(toolCallId)) return [];
        const toolName = String(part['name']);
        this._calls.set(toolCallId, { toolName, text: '' });
        return [{ type: 'tool-input-start', toolCallId, toolName }];
      }
      case 'tool-result': {
        const toolCallId = callOf(part);
        const { output, error, denied } = part;
        if (denied) return [{ type: 'tool-output-denied', toolCallId }];
        return error === undefined
          ? [{ type: 'tool-output-available', toolCallId, output }]
          : [{ type: 'tool-output-error', toolCallId, errorText: String(error) }];
      }
      case 'tool-approval-request': {
        const toolCallId = callOf(part);
        const { approvalId, signature } = part;
        const more = signature === undefined ? {} : { signature: String(signature) };
        return [{ type: part.type, approvalId: String(approvalId), toolCallId, ...more }];
      }
      case 'step':
        return [{ type: 'finish-step' }, { type: 'start-step' }];
      case 'citation': {
        const { url, title } = part;
        const more = title === undefined ? {} : { title: String(title) };
        return [{ type: 'source-url', sourceId: id, url: String(url), ...more }];
      }
      case 'file': {
        const { url, mediaType } = part;
        return [{ type: part.type, url: String(url), mediaType: String(mediaType) }];
      }
      case 'image':
        return [{ type: 'file', url: String(part['url']), mediaType: 'image/*' }];
      default:
        return part.text ? [] : [{ type: `data-${part.type}`, id, data: part }];
    }
  }

  private _grown(part: Part, n: number, delta: string): ChatChunk[] {
    const id = this._id(n);
    if (part.type === 'text' || part.type === 'reasoning')
      return [{ type: `${part.type}-delta`, id, delta }];
    if (part.type === 'tool-call') {
      const toolCallId = callOf(part);
      const call = this._calls.get(toolCallId);
      if (call) call.text += delta;
      return [{ type: 'tool-input-delta', toolCallId, inputTextDelta: delta }];
    }
    return [{ type: `data-${part.type}`, id, data: part }];
  }

  /** End what does not grow after `next`: the last text, and calls, except those beside `next`. */
  private _close(next?: Part): ChatChunk[] {
    const n = this._shown.length - 1;
    const part = this._shown[n];
    const chunks: ChatChunk[] = [];
    if (part?.type === 'text' || part?.type === 'reasoning')
      chunks.push({ type: `${part.type}-end`, id: this._id(n) });
    for (const [toolCallId, { toolName, text }] of this._calls) {
      const call = { toolCallId, toolName };
      const isBeside =
        next?.type === 'tool-call' ||
        (next?.type.startsWith('tool-') && callOf(next) !== toolCallId);
      try {
        const input: unknown = JSON.parse(text || (isBeside ? '' : '{}'));
        chunks.push({ type: 'tool-input-available', ...call, input });
      } catch {
        if (isBeside) continue;
        const errorText = 'The arguments are incomplete.';
        chunks.push({ type: 'tool-input-error', ...call, input: text, errorText });
      }
      this._calls.delete(toolCallId);
    }
    return chunks;
  }
}

/** Whether a part continues one that was shown. */
const continues = (part: Part | undefined, shown: Part): boolean =>
  !!part &&
  part.type === shown.type &&
  part['id'] === shown['id'] &&
  (part.text ?? '').startsWith(shown.text ?? '');

const callOf = ({ id }: Part): string => String(id);
