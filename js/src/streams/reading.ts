/**
 * Decisions of a stream's reader: which frames count, and the resulting answer.
 *
 * Pure: every method is a step that takes the time in milliseconds and returns effects. The parts
 * are a prefix of the answer unless `stale` is set.
 */

import { DEVELOPMENT } from '../build.js';
import { isObject } from '../wire/guard.js';
import { addPiece, isString, type Part, type Piece, textOf } from './parts.js';
import { grow, isPiece, partsOf, sorted, splitPair, textOfPiece } from './pieces.js';

/** Maximum tokens kept until the ones before them arrive. */
const HELD = 64;
/** Milliseconds to wait for a missing token. */
const PATIENCE = 500;
/**
 * Milliseconds without a frame until a stream is stalled; the next report comes after twice the
 * time.
 */
const SILENCE = 10_000;

/** @internal A message of the topic; `sender` is empty if the server names none. */
export interface Incoming {
  readonly type: string;
  readonly data: unknown;
  readonly sender: string;
}

/** @internal Effects that the caller of a step performs. */
export type ReaderEffect =
  | { readonly kind: 'start'; readonly meta: unknown }
  | { readonly kind: 'delta'; readonly pieces: Piece[] }
  | { readonly kind: 'snapshot' }
  | { readonly kind: 'gap'; readonly first: number; readonly last: number }
  | { readonly kind: 'stalled'; readonly ms: number }
  | {
      readonly kind: 'done';
      readonly count: number;
      readonly reason: string;
      readonly usage: unknown;
    }
  | {
      readonly kind: 'aborted';
      readonly count: number;
      readonly reason: string;
      readonly by: string;
    }
  | { readonly kind: 'heal' };

type Data = { readonly [field: string]: unknown };

/** @internal One stream from a reader's view. */
export class Reading {
  /** Id of the stream; empty for one of a plain producer, undefined before one is found. */
  stream: string | undefined;
  /** Epoch of the writer. */
  epoch = -1;
  /** Number of tokens in the parts. */
  next = 0;
  /** The answer so far. */
  parts: Part[] = [];
  /** Whether tokens are missing. */
  stale = false;
  /** Whether the beginning of the answer, or a snapshot, has arrived. */
  based = false;
  /** The `meta` of the writer. */
  meta: unknown = null;
  /** Whether the end has arrived. */
  ended = false;
  /** Number of ignored frames: invalid ones, and those of another writer. */
  ignored = 0;
  /** Who sent the newest frame of the stream that is not of the sender; development build only. */
  foreign: string | undefined;
  /** Time of the next `tick`, milliseconds; undefined for none. */
  due: number | undefined;
  private _seen: readonly (string | undefined)[] = [];
  private _writer: string | undefined;
  private _half = '';
  private readonly _held = new Map<number, readonly Piece[]>();
  private _since: number | undefined;
  private _received: number | undefined;
  private _silence = SILENCE;
  private _isFetching = false;
  private _isOutdated = false;

  /**
   * @param want Id of the stream; `latest` for the newest, `next` for the first new one.
   * @param _sender Accept only frames of this sender; empty accepts that of the first frame.
   */
  constructor(
    readonly want = 'latest',
    private _sender = '',
  ) {
    if (!/^(latest|next)$/.test(want)) this.stream = want;
  }

  /** The text of the parts. */
  get text(): string {
    return textOf(this.parts);
  }

  /** Take the messages retained before the reader subscribed; call it first. */
  begin(messages: readonly Incoming[], at: number): ReaderEffect[] {
    const keys = messages.filter((one) => this._counts(one)).map(keyOf);
    if (this.want === 'next') {
      this._seen = keys;
      return [];
    }
    if (this.want === 'latest') this.stream = [...new Set(keys)].filter(isString).at(-1);
    if (this.stream !== undefined) this._received = at;
    return this._receiveAll(this._newestAnswer(messages), at);
  }

  /** Take a message of the topic. */
  take(message: Incoming, at: number): ReaderEffect[] {
    return this._receiveAll([message], at);
  }

  /** Messages of the topic were lost in transit. */
  lost(): ReaderEffect[] {
    const effects: ReaderEffect[] = [];
    if (this.stream !== undefined && !this.ended) this._heal(effects);
    return effects;
  }

  /** Take the fetched retained messages. */
  healed(messages: readonly Incoming[], at: number): ReaderEffect[] {
    const { _received: received, _silence: silence } = this;
    const newest = this._newest();
    const isOutdated = this._isOutdated;
    const effects = this._receiveAll(this._newestAnswer(messages), at);
    // What this history lacks, another request just after it would lack, too.
    this._isFetching = this._isOutdated = false;
    if (this._newest() === newest) {
      // Frames that the reader already had don't show that the writer is alive.
      this._received = received;
      this._silence = silence;
    }
    if (isOutdated && !this.ended) this._heal(effects);
    else if (!this.ended) this._giveUp(effects);
    this._setDue();
    return effects;
  }

  /** The time `due` has passed. */
  tick(at: number): ReaderEffect[] {
    const { _since: since, _received: received } = this;
    const effects: ReaderEffect[] = [];
    if (since !== undefined && at >= since + PATIENCE) this._giveUp(effects);
    if (received !== undefined && at >= received + this._silence) {
      effects.push({ kind: 'stalled', ms: at - received });
      this._heal(effects);
      this._silence *= 2;
    }
    this._setDue();
    return effects;
  }

  // ---------------------------------------------------------------- inside

  /** Fetch the history; afterwards again, if a running request may lack what is missing. */
  private _heal(effects: ReaderEffect[]): void {
    if (this._isFetching) this._isOutdated = true;
    else effects.push({ kind: 'heal' });
    this._isFetching = true;
  }

  /** How far the frames reach that have arrived: the epoch, and an index in it. */
  private _newest(): string {
    // An answer of a plain producer is read again from its beginning, as another epoch.
    return `${this.stream && this.epoch} ${Math.max(this.next, ...this._held.keys())}`;
  }

  /** Leave out earlier answers of a plain producer: they have no id, and begin with index 0. */
  private _newestAnswer(messages: readonly Incoming[]): readonly Incoming[] {
    const first = messages.map((one) => this._counts(one) && begins(one)).lastIndexOf(true);
    return this.stream ? messages : messages.slice(Math.max(0, first));
  }

  private _receiveAll(messages: readonly Incoming[], at: number): ReaderEffect[] {
    const effects: ReaderEffect[] = [];
    for (const message of messages) {
      const key = keyOf(message);
      if (this.ended || key === undefined) continue;
      const isNew = !this._seen.includes(key) || begins(message);
      if (this.stream === undefined && isNew && this._counts(message)) this.stream = key;
      if (key === this.stream && !this._receiveFrame(message, effects, at)) this.ignored++;
    }
    this._setDue();
    return effects;
  }

  /** Whether it is from the sender of the stream, if that is known. */
  private _counts({ sender }: Incoming): boolean {
    return !this._sender || sender === this._sender;
  }

  private _setDue(): void {
    const { _since = Infinity, _received = Infinity } = this;
    const due = Math.min(_since + PATIENCE, _received + this._silence);
    this.due = this.ended || due === Infinity ? undefined : due;
  }

  /** Take a frame of the stream; returns whether it counted. */
  private _receiveFrame(message: Incoming, effects: ReaderEffect[], at: number): boolean {
    const { type, sender } = message;
    const data = message.data as Data;
    const { writer = '', pieces: more = [], content } = data;
    const isToken = type === 'token';
    const isSnapshot = type === 'token.snapshot';
    const isPlain = this.stream === '';
    // Held tokens are of an earlier answer if they have waited in vain.
    const isNew = isPlain && (this.next || this.stale) && begins(message);
    const epoch = isPlain ? Math.max(this.epoch, 0) + (isNew ? 1 : 0) : data['epoch'];
    if (!isCount(epoch) || !isString(writer) || epoch < this.epoch) return false;
    if (!this._counts(message)) {
      if (DEVELOPMENT) this.foreign = message.sender;
      return false;
    }
    if (epoch === this.epoch && writer !== this._writer) return false;
    const count =
      isPlain && !isToken
        ? this.next
        : type === 'stream.start'
          ? 0
          : data[isToken ? 'index' : isSnapshot ? 'upto' : 'count'];
    const parts = partsOf(data as Parameters<typeof partsOf>[0]);
    const pieces = [content].concat(more) as Piece[];
    if (!isCount(count) || (isSnapshot && !parts)) return false;
    if (isToken && !(Array.isArray(more) && pieces.every(isPiece))) return false;
    this._sender ||= sender;
    this._received = at;
    this._silence = SILENCE;
    if (epoch > this.epoch) {
      // Another writer takes over, from the start or from a snapshot.
      this._reset(epoch, writer);
      if (isToken || type === 'stream.start') {
        if (this.parts.length) effects.push({ kind: 'snapshot' });
        this.parts = [];
      }
    }
    if ('meta' in data) this.meta = data['meta'];
    if (type === 'stream.start') {
      if (!this.based) effects.push({ kind: 'start', meta: this.meta });
      this.based = true;
    } else if (isToken) {
      this._token(count, pieces, effects, at);
    } else if (isSnapshot) {
      if (this.based && count <= this.next) return true;
      this._replace(parts as Part[], count);
      this.based = true;
      effects.push({ kind: 'snapshot' });
      this._drain(effects);
    } else {
      this._finish(type, data, parts, count, effects);
    }
    return true;
  }

  private _reset(epoch: number, writer: string): void {
    this.epoch = epoch;
    this._writer = writer;
    this.based = false;
    this._held.clear();
    this._replace(this.parts, 0);
  }

  private _replace(parts: Part[], count: number): void {
    this.parts = parts;
    this.next = count;
    this.stale = false;
    this._since = undefined;
    this._half = '';
  }

  private _token(index: number, pieces: Piece[], effects: ReaderEffect[], at: number): void {
    const { _held: held } = this;
    this.based ||= !index;
    held.set(index, pieces);
    if (index <= this.next) {
      this._drain(effects);
      return;
    }
    if (!this.stale && (this._since === undefined || !held.has(index - 1))) {
      this._since ??= at;
      if (this.based) this._heal(effects);
    }
    if (held.size > HELD) {
      this._giveUp(effects);
      held.delete(Math.min(...held.keys()));
    }
  }

  /** Apply held frames that are now in order. */
  private _drain(effects: ReaderEffect[]): void {
    const { _held: held } = this;
    const applied: Piece[] = [];
    for (const index of held.keys()) if (index < this.next) held.delete(index);
    for (let pieces = held.get(this.next); pieces; pieces = held.get(this.next)) {
      held.delete(this.next++);
      for (const piece of pieces) this._apply(piece, applied);
    }
    if (applied.length) effects.push({ kind: 'delta', pieces: applied });
    if (!held.size) {
      this._since = undefined;
      this.stale = false;
    }
  }

  private _apply(given: Piece, applied: Piece[]): void {
    let piece = given;
    const text = textOfPiece(piece);
    const [whole, half] = splitPair(this._half + (text ?? ''));
    this._half = text === undefined ? '' : half;
    if (text !== undefined) {
      if (!whole) return;
      piece = isString(piece) ? whole : { text: whole };
    }
    grow(this.parts, piece);
    addPiece(applied, piece);
  }

  /** Report missing tokens once, until the view is complete again. */
  private _giveUp(effects: ReaderEffect[]): void {
    this._since = undefined;
    if (this.stale || !this._held.size) return;
    this.stale = true;
    const last = Math.min(...this._held.keys()) - 1;
    effects.push({ kind: 'gap', first: this.next, last });
  }

  private _finish(
    type: string,
    { finish_reason, usage = null, reason, by }: Data,
    parts: Part[] | undefined,
    count: number,
    effects: ReaderEffect[],
  ): void {
    if (parts) {
      // Deltas do not reveal the tokens that were lost before the end.
      if (sorted(parts) !== sorted(this.parts)) effects.push({ kind: 'snapshot' });
      this._replace(parts, count);
    } else this.stale ||= count !== this.next;
    this.ended = true;
    effects.push(
      type === 'message.complete'
        ? { kind: 'done', count, reason: word(finish_reason, 'stop'), usage }
        : { kind: 'aborted', count, reason: word(reason, 'error'), by: word(by, '') },
    );
  }
}

/** The stream id of a message; empty for a plain producer. */
function keyOf({ type, data }: Incoming): string | undefined {
  if (!isObject(data)) return undefined;
  const isPlain = /^(token|message\.complete)$/.test(type);
  if (!isPlain && !/^(token\.snapshot|stream\.(start|abort))$/.test(type)) return undefined;
  const { stream = isPlain ? '' : undefined } = data;
  return isString(stream) && (stream || !('stream' in data)) ? stream : undefined;
}

/** Whether it begins an answer of a plain producer, whose answers have no id. */
const begins = (one: Incoming): boolean =>
  one.type === 'token' && keyOf(one) === '' && (one.data as Data)['index'] === 0;

const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;

const word = (value: unknown, other: string): string => (isString(value) ? value : other);
