/** What the list shows: batched by frame, paused, narrowed to a topic, with older history above. */

import type { Gap, Message } from '@hanzoai/pubsub';

import { effect, onEnd, Signal } from '../reactive.js';
import { type Entry, type Incoming, MessageBuffer } from './buffer.js';
import { isFound } from './filter.js';

/** Messages that the page keeps. */
export const CAPACITY = 5_000;
/** Messages of history above them, of the topic that is shown. */
export const OLDER_MAX = 2_000;

/** Where messages wait for the next frame, and are kept. */
export class Feed {
  /** Moves when what is shown has changed. */
  readonly changed: Signal<number> = new Signal(0);
  readonly paused: Signal<boolean> = new Signal(false);
  /** How many wait because of the pause. */
  readonly waiting: Signal<number> = new Signal(0);
  /** The one topic that is shown; undefined for all. */
  readonly narrowed: Signal<string | undefined> = new Signal<string | undefined>(undefined);
  /** Only messages of this type are shown; undefined for all. */
  readonly type: Signal<string | undefined> = new Signal<string | undefined>(undefined);
  /** Only messages that contain this text are shown. */
  readonly query: Signal<string> = new Signal('');
  /** When the present connection began, Unix ms of this machine. */
  connectedAt = 0;
  private readonly _buffer = new MessageBuffer(CAPACITY);
  private _pending: Incoming[] = [];
  private _older: Entry[] = [];
  private _frame = 0;
  private _scope: readonly Entry[] | undefined;
  private _view: readonly Entry[] | undefined;

  constructor() {
    onEnd(() => cancelAnimationFrame(this._frame));
    effect(() => {
      void this.type.value;
      void this.query.value;
      this._touch();
    });
  }

  /** A message came. */
  message(message: Message): void {
    this._put({ kind: 'message', message, arrived: Date.now(), since: this.connectedAt });
  }

  /** Messages are missing here. */
  gap(gap: Gap): void {
    this._put({ kind: 'gap', gap });
  }

  /** The entries of what is chosen, found by the search or not, oldest first. */
  get scope(): readonly Entry[] {
    const topic = this.narrowed.peek();
    this._scope ??=
      topic === undefined
        ? this._buffer.entries
        : [...this._older, ...this._buffer.entries.filter((entry) => entry.topic === topic)];
    return this._scope;
  }

  /** The lines of the list, oldest first. */
  get view(): readonly Entry[] {
    const type = this.type.peek();
    const query = this.query.peek().trim().toLowerCase();
    this._view ??=
      type === undefined && !query
        ? this.scope
        : this.scope.filter((entry) => isFound(entry, type, query));
    return this._view;
  }

  /** How many lines there are, as effects read it. */
  get size(): number {
    void this.changed.value;
    return this.view.length;
  }

  /** How many entries there are without the search, as effects read it. */
  get total(): number {
    void this.changed.value;
    return this.scope.length;
  }

  /** How many of what is shown came after the entry of this key. */
  newerThan(key: number): number {
    let count = 0;
    while ((this.view.at(-1 - count)?.key ?? 0) > key) count += 1;
    return count;
  }

  /** Show one topic, or all. */
  narrow(topic: string | undefined): void {
    if (topic === this.narrowed.peek()) return;
    this._older = [];
    this.narrowed.value = topic;
    this._touch();
  }

  /** Pause the view, or continue. */
  pause(on: boolean): void {
    this.paused.value = on;
    if (!on) this._schedule();
  }

  /** Forget what is shown. */
  clear(): void {
    this._buffer.clear();
    this._older = [];
    this._pending = [];
    this.waiting.value = 0;
    this._touch();
  }

  /** Put history of the narrowed topic above the rest. */
  prepend(topic: string, messages: readonly Message[]): void {
    if (topic !== this.narrowed.peek()) return;
    const known = new Set(this._older.map((entry) => entry.kind === 'message' && entry.message.id));
    const fresh = messages.filter(({ id }) => !known.has(id) && !this._buffer.has(id));
    const entries = fresh.map((message): Entry => {
      const key = this._buffer.nextKey();
      return { kind: 'message', key, at: message.timestamp, topic, message };
    });
    this._older = [...entries, ...this._older].slice(0, OLDER_MAX);
    this._touch();
  }

  /** Whether there is room for more history. */
  get hasRoom(): boolean {
    return this._older.length < OLDER_MAX;
  }

  private _put(incoming: Incoming): void {
    this._pending.push(incoming);
    // A hidden tab has no frames, and a pause may last: what no longer fits is given up.
    if (this._pending.length >= 2 * CAPACITY) this._pending = this._pending.slice(-CAPACITY);
    this._schedule();
  }

  private _schedule(): void {
    this._frame ||= requestAnimationFrame(() => {
      this._frame = 0;
      if (this.paused.peek()) {
        this.waiting.value = Math.min(this._pending.length, CAPACITY);
        return;
      }
      this.waiting.value = 0;
      if (!this._pending.length) return;
      const gone = this._buffer.add(this._pending);
      this._pending = [];
      // Between history and the newest there must be no hole.
      const topic = this.narrowed.peek();
      if (this._older.length) {
        const kept = gone.filter((entry) => entry.topic === topic);
        if (kept.length) this._older = [...this._older, ...kept].slice(-OLDER_MAX);
      }
      this._touch();
    });
  }

  private _touch(): void {
    this._scope = undefined;
    this._view = undefined;
    this.changed.value = this.changed.peek() + 1;
  }
}
