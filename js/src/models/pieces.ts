/** Pieces of one answer, in which a part continues until another one begins. */

import type { Part, Piece } from '../streams/parts.js';

/** @internal Joins the output of a model to pieces; pure. */
export class Pieces {
  private _open = '';
  private readonly _calls = new Map<string, Part>();

  /** Text of the answer. */
  text(text: unknown): Piece[] {
    if (!text) return [];
    this._open = 'text';
    return [String(text)];
  }

  /** Reasoning of the model; another `key` begins another part. */
  reasoning(text: unknown, key: unknown = ''): Piece[] {
    return text ? this.grow(`reasoning ${key}`, { type: 'reasoning' }, text) : [];
  }

  /** The start of a tool call, or more of its arguments; `key` identifies the call. */
  call(key: unknown, id: unknown, name: unknown, text: unknown): Piece[] {
    let part = this._calls.get(String(key));
    // Gemini gives all calls the same index, each with its own id and name. vLLM gives each
    // fragment of one call another id, without the name.
    if (!part || (name && id && id !== part['id'])) {
      part = { type: 'tool-call', id: id || String(key), name: name || '' };
      this._calls.set(String(key), part);
      this._open = '';
    } else if (!text) return [];
    return this.grow(`call ${key}`, part, text);
  }

  /** Whether a call has begun. */
  hasCall(key: unknown): boolean {
    return this._calls.has(String(key));
  }

  /** A citation; skipped without a URL. */
  citation(url: unknown, title: unknown): Piece[] {
    return url ? this.whole({ type: 'citation', url, ...(title ? { title } : {}) }) : [];
  }

  /** A part that does not grow. */
  whole(part: Part): Piece[] {
    this._open = '';
    return [part];
  }

  /** Text that continues the part of `key`, or begins `part` again after another one. */
  grow(key: string, part: Part, grown: unknown): Piece[] {
    const text = String(grown ?? '');
    const isSame = this._open === key;
    this._open = key;
    return isSame ? [{ text }] : [{ ...part, text }];
  }
}
