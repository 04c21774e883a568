/**
 * What a writer of a stream decides: which frame goes out next, and when.
 *
 * Pure: every method is a step that takes the time in milliseconds and gives effects; the caller
 * publishes, keeps one timer for `due`, and reports what became of each publish.
 */

import type { JsonObject } from '../generated/wire.js';
import { addPiece, copyOf, isString, type Part, type Piece } from './parts.js';
import { bodyOf, grow, isObject, isPiece, splitPair, textOfPiece } from './pieces.js';
import type { Incoming } from './reading.js';

/** Milliseconds between two tokens, at least. */
const WINDOW = 40;
/** The window that rate errors lead to, at most. */
const WIDEST = 500;
/** Tokens after which a snapshot is due. */
const EVERY = 40;
/** Milliseconds after which a snapshot is due, while the writer pauses, too. */
const INTERVAL = 1_500;
/** Milliseconds between two snapshots, at most. */
const SELDOM = 5_000;
/** Bytes that may wait to be sent before `write` waits. */
const UNSENT = 65_536;
/** Bytes of an answer as JSON; a frame with all of it stays below the limit of a payload. */
const LARGEST = 196_608;
/** Milliseconds without a successful publish after which the writer gives up. */
const PATIENCE = 60_000;
/** Milliseconds that a publish may be held back before the writer reports it. */
const SLOW = 1_000;
/** Seconds that tokens and snapshots are kept. */
const TTL = 120;
/** Seconds that the end of a stream is kept. */
const TTL_END = 3_600;

/** @internal Publish a frame, and report what became of it with `sent` or `failed`. */
export interface PublishFrame {
  readonly kind: 'publish';
  readonly type: string;
  readonly id: string;
  readonly ttl: number;
  readonly data: JsonObject;
}

/** @internal What the caller of a step is to do. */
export type WriterEffect =
  | PublishFrame
  | { readonly kind: 'refused'; readonly code: 'invalid_payload' | 'payload_too_large' }
  | { readonly kind: 'ended' }
  | { readonly kind: 'failed'; readonly code: string }
  | { readonly kind: 'cancelled'; readonly reason: string; readonly by: string }
  | { readonly kind: 'steered'; readonly data: unknown; readonly by: string }
  | { readonly kind: 'slowed'; readonly ms: number };

/** @internal How a stream ends. */
export type EndKind = 'complete' | 'abort';

/** @internal What a writer begins with. */
export interface WritingOptions {
  /** Number of the tokens that earlier writers published; undefined starts a new stream. */
  readonly base?: number | undefined;
  /** What these tokens amount to. */
  readonly parts?: readonly Part[] | undefined;
  /** What readers get with the start. */
  readonly meta?: unknown;
  /** Milliseconds between two tokens, at least. */
  readonly window?: number | undefined;
}

/** @internal One stream, as its writer sees it. */
export class Writing {
  /** When `tick` is to be called, milliseconds; undefined for never. */
  due: number | undefined;
  /** Whether the program is to wait before it writes more. */
  full = false;
  /** Whether nothing more is written. */
  ended = false;
  /** The answer so far, with what is not published yet. */
  readonly parts: Part[];
  /** What was published, how often a publish failed, and how often it was held back. */
  readonly stats: { tokens: number; snapshots: number; retries: number; slowed: number } = {
    tokens: 0,
    snapshots: 0,
    retries: 0,
    slowed: 0,
  };
  private readonly _meta: JsonObject;
  private readonly _least: number;
  private _window: number;
  private readonly _published: Part[];
  private _size: number;
  private _pending: Piece[] = [];
  private _waiting = 0;
  private _held = '';
  private _index: number;
  private _opened = false;
  private _snapshot: boolean;
  private _since = 0;
  private _snapped = 0;
  private _said = -WIDEST;
  private _flight: PublishFrame | undefined;
  private _begun = 0;
  private _trip = 0;
  private _fails = 0;
  private _failing: number | undefined;
  private _again: number | undefined;
  private _end: readonly [EndKind, JsonObject] | undefined;
  private _self: string | undefined;

  /**
   * @param stream Id of the stream.
   * @param epoch Higher than that of any earlier writer of the stream.
   * @param _writer A word that no other writer uses.
   */
  constructor(
    readonly stream: string,
    readonly epoch: number,
    private readonly _writer: string,
    { base, parts = [], meta, window = WINDOW }: WritingOptions = {},
  ) {
    this.parts = copyOf(parts);
    this._published = copyOf(parts);
    this._size = sizeOf(parts);
    this._meta = meta == null ? {} : ({ meta } as JsonObject);
    this._least = this._window = window;
    this._index = base ?? 0;
    this._snapshot = base !== undefined;
  }

  // ---------------------------------------------------------------- the program's side

  /** Begin: publish the start of the stream. */
  open(at: number): WriterEffect[] {
    this._snapped = at;
    return this.tick(at);
  }

  /** Add a piece; after the end it is ignored. */
  write(given: Piece, at: number): WriterEffect[] {
    let piece = given;
    if (this.ended || this._end) return [];
    if (!isPiece(piece)) return this._refuse('invalid_payload', at);
    const text = textOfPiece(piece);
    let size: number;
    if (text === undefined) {
      if (this._held) return this._refuse('invalid_payload', at);
      size = sizeOf(piece);
    } else {
      const [whole, held] = splitPair(this._held + text);
      this._held = held;
      // U+FFFD that was not written stands for half of a pair.
      if (whole.split('\ufffd').length !== text.split('\ufffd').length)
        return this._refuse('invalid_payload', at);
      piece = isString(piece) ? whole : { text: whole };
      size = sizeOf(whole) - 2;
    }
    if (this._size + size > LARGEST) return this._refuse('payload_too_large', at);
    this._size += size;
    this._waiting += size;
    this.full = this._waiting >= UNSENT;
    grow(this.parts, piece);
    addPiece(this._pending, piece);
    return this.tick(at);
  }

  /** End the stream; the first end counts. */
  finish(kind: EndKind, fields: JsonObject, at: number): WriterEffect[] {
    if (this.ended || this._end) return [];
    if (kind === 'complete' && this._held) return this._refuse('invalid_payload', at);
    this._end = [kind, fields];
    return this.tick(at);
  }

  // ---------------------------------------------------------------- the other side

  /** The frame was published. */
  sent(at: number): WriterEffect[] {
    const flight = this._flight;
    this._flight = undefined;
    if (this.ended || !flight) return [];
    const effects: WriterEffect[] = [];
    const ms = at - this._begun;
    this._trip = ms;
    this._fails = 0;
    this._failing = this._again = undefined;
    this._window = Math.max(this._least, this._window - (this._window >> 4));
    if (ms > SLOW && !this.stats.slowed++) effects.push({ kind: 'slowed', ms });
    if (flight.id.endsWith(':end')) {
      this._stop();
      effects.push({ kind: 'ended' });
    }
    return [...effects, ...this.tick(at)];
  }

  /** The frame was not published, or it is not known: it is sent again, if that may help. */
  failed(code: string, retryable: boolean, at: number, wait = 0): WriterEffect[] {
    if (this.ended || !this._flight) return [];
    this._failing ??= at;
    if (!retryable || at - this._failing > PATIENCE) return this._fail(code);
    if (code === 'rate_limited') this._window = Math.min(WIDEST, (this._window * 5) >> 1);
    this._snapshot = true;
    this._again = at + Math.max(wait, Math.min(2_000, 100 << Math.min(this._fails++, 5)));
    return this.tick(at);
  }

  /** Take a message of the topic: readers' wishes, and frames of another writer. */
  hear(type: string, data: unknown, sender: string): WriterEffect[] {
    if (this.ended || !isObject(data) || data['stream'] !== this.stream) return [];
    const { epoch, writer, reason, data: said } = data;
    // A reader that has not seen a takeover yet names the epoch before.
    const isMeant = epoch == null || (typeof epoch === 'number' && epoch <= this.epoch);
    if (isMeant && type === 'stream.cancel')
      return [{ kind: 'cancelled', reason: isString(reason) ? reason : '', by: sender }];
    if (isMeant && type === 'stream.steer')
      return [{ kind: 'steered', data: said ?? null, by: sender }];
    if (writer === this._writer) this._self = sender;
    else if (isString(writer) && sender === this._self) {
      const other = epoch as number;
      if (other > this.epoch || (other === this.epoch && writer < this._writer))
        return this._fail('conflict');
    }
    return [];
  }

  /** Take the history of the topic: the cancels that no earlier writer lived to act on. */
  inherit(messages: readonly Incoming[]): WriterEffect[] {
    let cancels: WriterEffect[] = [];
    for (const { type, data, sender } of messages) {
      if (type === 'stream.cancel') cancels.push(...this.hear(type, data, sender));
      // A cancel from before an attempt was not meant for that attempt.
      else if (type === 'stream.start' && isObject(data) && data['stream'] === this.stream)
        cancels = [];
    }
    return cancels;
  }

  /** The time `due` has come: publish what is to go out now, and say when to look again. */
  tick(at: number): WriterEffect[] {
    const { _flight: flight, _again: again, _end: end, _pending: pending } = this;
    this.due = again;
    if (this.ended) {
      this.due = undefined;
      return [];
    }
    if (flight) {
      if (again === undefined || at < again) return [];
      this._again = this.due = undefined;
      this.stats.retries++;
      this._begun = at;
      return [flight];
    }
    const pause = Math.max(this._window, Math.min(this._trip, WIDEST));
    const interval =
      Math.max(INTERVAL, Math.min(SELDOM, Math.floor((INTERVAL * pause) / WINDOW))) *
      (1 + Math.floor(this._size / UNSENT));
    const snapshotAt = this._snapped + interval;
    const isOpened = this._opened;
    this._opened = true;
    if (!isOpened && !this._snapshot) return this._say('stream.start', 'start', this._meta, at);
    const isDue = this._snapshot || this._since >= EVERY || at >= snapshotAt;
    if (!isOpened || (isDue && (pending.length || !end))) {
      this._snapshot = false;
      this._since = 0;
      this._snapped = at;
      const body = { upto: this._index, ...bodyOf(this._published), ...this._meta };
      return this._say('token.snapshot', `s${++this.stats.snapshots}`, body, at);
    }
    const tokenAt = this._said + pause;
    if (pending.length && (at >= tokenAt || end)) {
      this._pending = [];
      this._waiting = 0;
      this.full = false;
      for (const piece of pending) grow(this._published, piece);
      const content = isString(pending[0]) ? (pending.shift() as string) : '';
      this._since++;
      this._said = at;
      this.stats.tokens++;
      const index = this._index++;
      const more = pending.length ? { pieces: pending as unknown as JsonObject[] } : {};
      return this._say('token', String(index), { index, content, ...more }, at);
    }
    if (end) {
      const [kind, fields] = end;
      const type = kind === 'complete' ? 'message.complete' : 'stream.abort';
      const data = { count: this._index, ...bodyOf(this._published), ...fields };
      return this._say(type, 'end', data, at);
    }
    this.due = pending.length ? Math.min(tokenAt, snapshotAt) : snapshotAt;
    return [];
  }

  // ---------------------------------------------------------------- inside

  private _refuse(code: 'invalid_payload' | 'payload_too_large', at: number): WriterEffect[] {
    this._held = '';
    return [{ kind: 'refused', code }, ...this.finish('abort', { reason: code }, at)];
  }

  private _fail(code: string): WriterEffect[] {
    this._stop();
    return [{ kind: 'failed', code }];
  }

  private _stop(): void {
    this.ended = true;
    this.full = false;
    this.due = undefined;
  }

  private _say(type: string, name: string, more: JsonObject, at: number): WriterEffect[] {
    const { stream, epoch, _writer: writer } = this;
    this._begun = at;
    this.due = undefined;
    this._flight = {
      kind: 'publish',
      type,
      id: `${stream}:${epoch}:${name}`,
      ttl: name === 'end' ? TTL_END : TTL,
      data: { stream, epoch, writer, ...more },
    };
    return [this._flight];
  }
}

const sizeOf = (value: unknown): number => new TextEncoder().encode(JSON.stringify(value)).length;
