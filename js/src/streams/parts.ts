/**
 * Contents of an answer: text, and other parts in order with it.
 *
 * A part is a JSON object with a `type`; its `text` grows. A piece is one step of growth: a string
 * continues the text, an object with a `type` begins a part, and an object with only `text`
 * continues the last part.
 */

/** Plain text of the answer. */
export interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

/** Reasoning of the model. */
export interface ReasoningPart {
  readonly type: 'reasoning';
  readonly text: string;
}

/**
 * A tool call; `text` is the JSON of its arguments so far, and `partialJson(part.text)` returns
 * their best value at any moment.
 */
export interface ToolCallPart {
  readonly type: 'tool-call';
  /** Id of the call, for example that of the model. */
  readonly id: string;
  /** Name of the tool. */
  readonly name: string;
  /** JSON of the arguments so far. */
  readonly text: string;
}

/** The source of something in the answer. */
export interface CitationPart {
  readonly type: 'citation';
  /** Address of the source. */
  readonly url: string;
  /** Title of the source. */
  readonly title?: string | undefined;
}

/** An image, by its URL. */
export interface ImagePart {
  readonly type: 'image';
  /** Address of the image. */
  readonly url: string;
  /** Text for readers who do not see the image. */
  readonly alt?: string | undefined;
}

/** A part as the reader receives it: its `type`, its `text` if it has one, and its other fields. */
export interface Part {
  readonly type: string;
  text?: string;
  readonly [field: string]: unknown;
}

/** The input of a writer: text, a new part, or `{text}` that continues the last part. */
export type Piece =
  | string
  | TextPart
  | ReasoningPart
  | ToolCallPart
  | CitationPart
  | ImagePart
  | Part
  | { readonly text: string };

/** @internal Append a piece to others; joins it with the last one if both continue the text. */
export function addPiece(pieces: Piece[], piece: Piece): void {
  const last = pieces.length - 1;
  if (typeof piece === 'string' && typeof pieces[last] === 'string') pieces[last] += piece;
  else pieces.push(piece);
}

/** @internal Copy parts, so that they can grow separately from these. */
export const copyOf = (parts: readonly Part[]): Part[] => parts.map((part) => ({ ...part }));

/** The text of an answer: its parts of type `text`, joined. */
export const textOf = (parts: readonly Part[]): string =>
  parts.map(({ type, text = '' }) => (type === 'text' ? text : '')).join('');

/** @internal */
export const isString = (value: unknown): value is string => typeof value === 'string';

/**
 * The best value of incomplete JSON; undefined if there is none yet.
 *
 * Open strings end at the end of the text; an incomplete number, word or key is omitted.
 */
export function partialJson(text: string): unknown {
  let closers = '';
  let inString = false;
  // The last two possible ends of the text.
  let safe: string[] = [];
  const masked = text.replace(/\\(?:u[\da-f]{4}|[^u])/gi, (found) => '_'.repeat(found.length));
  for (const { 0: mark, index } of masked.matchAll(/["{}[\],]/g)) {
    if (mark === '"') inString = !inString;
    else if (inString) continue;
    else if (/[}\]]/.test(mark)) closers = closers.slice(1);
    else {
      if (mark !== ',') closers = (mark === '{' ? '}' : ']') + closers;
      safe = [text.slice(0, index + +(mark !== ',')) + closers, ...safe.slice(0, 1)];
    }
  }
  const cut = inString ? `${text.slice(0, masked.replace(/\\[^"]*$/, '').length)}"` : text;
  for (const one of [cut + closers, ...safe]) {
    try {
      return JSON.parse(one);
    } catch {}
  }
  return undefined;
}
