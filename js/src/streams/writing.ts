/**
 * Decisions of a stream's writer: which frame to send next, and when.
 *
 * Pure: every method is a step that takes the time in milliseconds and returns effects. The caller
 * publishes, keeps one timer for `due`, and reports the outcome of each publish.
 */

import type { JsonObject } from '../generated/wire.js';
import { isObject } from '../wire/guard.js';
import { sizeOf } from '../wire/plain.js';
import { addPiece, copyOf, isString, type Part, type Piece } from './parts.js';
import { bodyOf, grow, isPiece, splitPair, textOfPiece } from './pieces.js';
import type { Incoming } from './reading.js';

/** Minimum milliseconds between two tokens. */
const WINDOW = 40;
/** Maximum milliseconds between two tokens after rate errors. */
const WIDEST = 500;
/** Tokens after which a snapshot is due. */
const EVERY = 40;
/** Milliseconds until a snapshot is due, also while the writer pauses. */
const INTERVAL = 1_500;
/** Maximum milliseconds between two snapshots. */
const SELDOM = 5_000;
/** Bytes that may wait to be sent before `write` blocks. */
const UNSENT = 65_536;
/** Maximum bytes of an answer as JSON, so that one frame can carry all of it. */
const LARGEST = 196_608;
/** @internal Milliseconds without a successful publish until the writer gives up. */
export const PATIENCE = 60_000;
/** Milliseconds of delay until the writer reports a slow publish. */
const SLOW = 1_000;
/** Seconds that tokens and snapshots are kept. */
const TTL = 120;
/** Seconds that the end of a stream is kept. */
const TTL_END = 3_600;

/** @internal Publish a frame, and report the outcome with `sent` or `failed`. */
export interface PublishFrame {
  readonly kind: 'publish';
  readonly type: string;
  readonly id: string;
  readonly ttl: number;
  readonly data: JsonObject;
}

/** @internal Effects that the caller of a step performs. */
export type WriterEffect =
  | PublishFrame
  | { readonly kind: 'refused'; readonly code: 'invalid_payload' | 'payload_too_large' }
  | { readonly kind: 'failed'; readonly code: string }
  | { readonly kind: 'cancelled'; readonly reason: string; readonly by: string }
  | { readonly kind: 'steered'; readonly data: unknown; readonly by: string }
  | { readonly kind: 'slowed'; readonly ms: number };

/** @internal The end of a stream. */
export type EndKind = 'complete' | 'abort';

/** @internal The initial state of a writer. */
export interface WritingOptions {
  /** Number of tokens from earlier writers; undefined starts a new stream. */
  readonly base?: number | undefined;
  /** The parts of these tokens. */
  readonly parts?: readonly Part[] | undefined;
  /** `meta` for the start event. */
  readonly meta?: unknown;
  /** Minimum milliseconds between two tokens. */
  readonly window?: number | undefined;
}

/** @internal One stream from its writer's view. */
export class Writing {
  /** Time of the next `tick`, milliseconds; undefined for none. */
  due: number | undefined;
  /** Whether the program must wait before it writes more. */
  full = false;
  /** Whether the stream has ended for the program. */
  ended = false;
  /** The answer so far, including unpublished text. */
  readonly parts: Part[];
  /** Counters of publishes: sent, failed, and slow. */
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
  /** Number of published parts before the last token, and a copy of the last one, if any. */
  private _before: readonly [count: number, last: readonly Part[]] = [0, []];
  private _size: number;
  private _pending: Piece[] = [];
  private _waiting = 0;
  private _held = '';
  private _index: number;
  private _opened = false;
  private _snapshot: boolean;
  private _since = 0;
  private _snapped = 0;
  private _lastToken = 0;
  private _flight: PublishFrame | undefined;
  private _begun = 0;
  private _trip = 0;
  private _fails = 0;
  private _failing: number | undefined;
  private _again: number | undefined;
  /** Whether the end leaves the answer out, because no frame can carry it. */
  private _isBare = false;
  private _end: readonly [EndKind, JsonObject] | undefined;
  private _self: string | undefined;

  /**
   * @param stream Id of the stream.
   * @param epoch Higher than that of any earlier writer of the stream.
   * @param _writer A unique id of this writer.
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

  // ---------------------------------------------------------------- calls of the program

  /** Publish the start of the stream. */
  open(at: number): WriterEffect[] {
    this._snapped = at;
    this._lastToken = at - this._window;
    return this.tick(at);
  }

  /** Add a piece; not after `finish`. */
  write(given: Piece, at: number): WriterEffect[] {
    let piece = given;
    if (!isPiece(piece)) return this._refuse('invalid_payload', at);
    const text = textOfPiece(piece);
    let size: number;
    if (text === undefined) {
      if (this._held) return this._refuse('invalid_payload', at);
      // The program may change its object before it is published.
      piece = { ...(piece as Part) };
      size = sizeOf(piece);
      if (Number.isNaN(size)) return this._refuse('invalid_payload', at);
    } else {
      const [whole, held] = splitPair(this._held + text);
      this._held = held;
      // A U+FFFD that the program did not write replaces half of a pair.
      if (whole.split('\ufffd').length !== text.split('\ufffd').length)
        return this._refuse('invalid_payload', at);
      if (!whole) return [];
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

  /** End the stream, once. */
  finish(kind: EndKind, fields: JsonObject, at: number): WriterEffect[] {
    if (kind === 'complete' && this._held) return this._refuse('invalid_payload', at);
    this._end = [kind, fields];
    return this.tick(at);
  }

  // ---------------------------------------------------------------- results and messages

  /** The frame was published. */
  sent(at: number): WriterEffect[] {
    const flight = this._flight;
    this._flight = undefined;
    if (!flight) return [];
    const effects: WriterEffect[] = [];
    const ms = at - this._begun;
    this._trip = ms;
    this._fails = 0;
    this._failing = this._again = undefined;
    this._window = Math.max(this._least, this._window - (this._window >> 4));
    if (ms > SLOW && !this.stats.slowed++) effects.push({ kind: 'slowed', ms });
    if (flight.id.endsWith(':end')) this._stop();
    return [...effects, ...this.tick(at)];
  }

  /** The frame was not published, or its outcome is unknown: send it again if that may help. */
  failed(code: string, retryable: boolean, at: number, wait = 0): WriterEffect[] {
    const flight = this._flight;
    if (this.ended || !flight) return [];
    this._failing ??= this._begun;
    if (/^(invalid_payload|payload_too_large)$/.test(code) && !this._isBare)
      return this._takeBack(flight, code, at);
    if (!retryable || at - this._failing >= PATIENCE) return this._fail(code);
    if (code === 'rate_limited') this._window = Math.min(WIDEST, (this._window * 5) >> 1);
    this._snapshot = true;
    this._again = at + Math.max(wait, Math.min(2_000, 100 << Math.min(this._fails++, 5)));
    return this.tick(at);
  }

  /** Take a message of the topic: requests of readers, and frames of another writer. */
  receive(type: string, data: unknown, sender: string): WriterEffect[] {
    if (this.ended || !isObject(data) || data['stream'] !== this.stream) return [];
    const { epoch, writer, reason, data: given } = data;
    const isNumber = typeof epoch === 'number';
    // A reader that has not noticed a takeover yet sends the previous epoch.
    const isMeant = epoch == null || (isNumber && epoch <= this.epoch);
    if (isMeant && type === 'stream.cancel')
      return [{ kind: 'cancelled', reason: isString(reason) ? reason : '', by: sender }];
    if (isMeant && type === 'stream.steer')
      return [{ kind: 'steered', data: given ?? null, by: sender }];
    if (writer === this._writer) this._self = sender;
    else if (isString(writer) && isNumber && sender === this._self && epoch > this.epoch)
      return this._fail('conflict');
    return [];
  }

  /** Take the history of the topic: cancels that no earlier writer has handled. */
  inherit(messages: readonly Incoming[]): WriterEffect[] {
    let cancels: WriterEffect[] = [];
    for (const { type, data, sender } of messages) {
      if (type === 'stream.cancel') cancels.push(...this.receive(type, data, sender));
      // A cancel from before this attempt does not apply to it.
      else if (type === 'stream.start' && isObject(data) && data['stream'] === this.stream)
        cancels = [];
    }
    return cancels;
  }

  /** The time `due` has passed: publish due frames, and set the next time. */
  tick(at: number): WriterEffect[] {
    const { _flight: flight, _again: again, _end: end, _pending: pending } = this;
    if (this.ended) return [];
    this.due = again;
    if (flight) {
      if (again === undefined || at < again) return [];
      this._again = this.due = undefined;
      this.stats.retries++;
      this._begun = at;
      return [flight];
    }
    const pause = Math.max(this._window, this._trip);
    const interval =
      Math.max(INTERVAL, Math.min(SELDOM, Math.floor((INTERVAL * pause) / WINDOW))) *
      (1 + Math.floor(this._size / UNSENT));
    const snapshotAt = this._snapped + interval;
    const isOpened = this._opened;
    this._opened = true;
    if (!isOpened && !this._snapshot)
      return this._publishFrame('stream.start', 'start', this._meta, at);
    const isDue = this._snapshot || this._since >= EVERY || at >= snapshotAt;
    if (!isOpened || (isDue && !end)) {
      this._snapshot = false;
      this._since = 0;
      this._snapped = at;
      const body = { upto: this._index, ...bodyOf(this._published), ...this._meta };
      const count = ++this.stats.snapshots;
      return this._publishFrame('token.snapshot', isOpened ? `s${count}` : 'start', body, at);
    }
    const tokenAt = this._lastToken + pause;
    if (pending.length && (at >= tokenAt || end)) {
      this._pending = [];
      this._waiting = 0;
      this.full = false;
      // Only the last part grows, and new ones follow it.
      this._before = [this._published.length, copyOf(this._published.slice(-1))];
      for (const piece of pending) grow(this._published, piece);
      const content = isString(pending[0]) ? (pending.shift() as string) : '';
      this._since++;
      this._lastToken = at;
      this.stats.tokens++;
      const index = this._index++;
      const more = pending.length ? { pieces: pending as unknown as JsonObject[] } : {};
      return this._publishFrame('token', String(index), { index, content, ...more }, at);
    }
    if (end) {
      const [kind, fields] = end;
      const type = kind === 'complete' ? 'message.complete' : 'stream.abort';
      const body = this._isBare ? {} : bodyOf(this._published);
      const data = { count: this._index, ...body, ...fields };
      return this._publishFrame(type, 'end', data, at);
    }
    this.due = pending.length ? Math.min(tokenAt, snapshotAt) : snapshotAt;
    return [];
  }

  // ---------------------------------------------------------------- inside

  private _refuse(code: 'invalid_payload' | 'payload_too_large', at: number): WriterEffect[] {
    return [{ kind: 'refused', code }, ...this.finish('abort', { reason: code }, at)];
  }

  /**
   * Abort without what no frame can carry, so that readers do not wait for an end. The text before
   * it stays, unless it is too large, too.
   */
  private _takeBack({ type, data }: PublishFrame, code: string, at: number): WriterEffect[] {
    if (type === 'token') {
      const [count, last] = this._before;
      this._index--;
      this._published.splice(Math.max(0, count - 1), Infinity, ...last);
      if (data['content']) grow(this._published, data['content'] as string);
    }
    this._isBare = type === 'stream.abort';
    this._flight = this._failing = undefined;
    this._pending = [];
    this._end = ['abort', { reason: code }];
    return [{ kind: 'failed', code }, ...this.tick(at)];
  }

  private _fail(code: string): WriterEffect[] {
    this._stop();
    return [{ kind: 'failed', code }];
  }

  private _stop(): void {
    this.ended = true;
    this.due = undefined;
  }

  private _publishFrame(type: string, name: string, more: JsonObject, at: number): WriterEffect[] {
    const { stream, epoch, _writer: writer } = this;
    this._begun = at;
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
