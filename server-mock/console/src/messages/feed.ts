/**
 * The content of the list: updated once per frame, paused, filtered by topic, with older history
 * above.
 */

import type { Gap, Message } from '@hanzoai/pubsub';

import { effect, onEnd, Signal } from '../reactive.js';
import { type Entry, type Incoming, identityOf, MessageBuffer } from './buffer.js';
import { isFound } from './filter.js';

/** Maximum messages in memory. */
export const CAPACITY = 5_000;
/** Maximum messages of history above them, for the shown topic. */
export const OLDER_MAX = 2_000;

/** Collects messages until the next frame, and stores them. */
export class Feed {
  /** A counter that increases when the content has changed. */
  readonly changed: Signal<number> = new Signal(0);
  readonly paused: Signal<boolean> = new Signal(false);
  /** Number of messages that wait because of the pause. */
  readonly waiting: Signal<number> = new Signal(0);
  /** The shown topic; undefined for all topics. */
  readonly narrowed: Signal<string | undefined> = new Signal<string | undefined>(undefined);
  /** Filter by type; undefined for all types. */
  readonly type: Signal<string | undefined> = new Signal<string | undefined>(undefined);
  /** Filter by text. */
  readonly query: Signal<string> = new Signal('');
  /** When the current connection was established, Unix ms of this machine. */
  connectedAt = 0;
  /** Whether a page of history is loading, which has to join the entries that are shown now. */
  loading = false;
  /** Increases when another topic is shown, or the list is cleared. */
  generation = 0;
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

  /** Add a message. */
  message(message: Message): void {
    this._put({ kind: 'message', message, arrived: Date.now(), since: this.connectedAt });
  }

  /** Add a gap in its place. */
  gap(gap: Gap): void {
    this._put({ kind: 'gap', gap });
  }

  /** The entries of the chosen topic before the filters, oldest first. */
  get scope(): readonly Entry[] {
    const topic = this.narrowed.peek();
    this._scope ??=
      topic === undefined
        ? this._buffer.entries
        : [...this._older, ...this._buffer.entries.filter((entry) => entry.topic === topic)];
    return this._scope;
  }

  /** The filtered entries, oldest first. */
  get view(): readonly Entry[] {
    const type = this.type.peek();
    const query = this.query.peek().trim().toLowerCase();
    this._view ??=
      type === undefined && !query
        ? this.scope
        : this.scope.filter((entry) => isFound(entry, type, query));
    return this._view;
  }

  /** Number of filtered entries; effects that read it are notified. */
  get size(): number {
    void this.changed.value;
    return this.view.length;
  }

  /** Number of entries before the filters; effects that read it are notified. */
  get total(): number {
    void this.changed.value;
    return this.scope.length;
  }

  /** Number of filtered entries after the one with this key. */
  newerThan(key: number): number {
    let count = 0;
    while ((this.view.at(-1 - count)?.key ?? 0) > key) count += 1;
    return count;
  }

  /** Show one topic, or all with undefined. */
  narrow(topic: string | undefined): void {
    if (topic === this.narrowed.peek()) return;
    this._older = [];
    this.generation += 1;
    this.narrowed.value = topic;
    this._touch();
  }

  /** Pause or resume the view. */
  pause(on: boolean): void {
    this.paused.value = on;
    if (!on) this._schedule();
  }

  /** Remove all entries. */
  clear(): void {
    this._buffer.clear();
    this.generation += 1;
    this._older = [];
    this._pending = [];
    this.waiting.value = 0;
    this._touch();
  }

  /** The oldest message of the chosen topic; history omits those with `ttl` 0. */
  get oldest(): Message | undefined {
    const messages = this.scope.flatMap((entry) => (entry.kind === 'message' ? entry.message : []));
    return messages.find(({ ttl }) => ttl !== 0);
  }

  /** Insert history of the shown topic above the rest. */
  prepend(topic: string, messages: readonly Message[]): void {
    const known = new Set(
      this._older.map((entry) => entry.kind === 'message' && identityOf(entry.message)),
    );
    const fresh = messages.filter(
      (message) => !known.has(identityOf(message)) && !this._buffer.has(message),
    );
    const entries = fresh.map((message): Entry => {
      const key = this._buffer.nextKey();
      return { kind: 'message', key, at: message.timestamp, topic, message };
    });
    this._older = [...entries, ...this._older].slice(-OLDER_MAX);
    this._touch();
  }

  /** Whether there is room for more history. */
  get hasRoom(): boolean {
    return this._older.length < OLDER_MAX;
  }

  private _put(incoming: Incoming): void {
    this._pending.push(incoming);
    // A hidden tab has no frames, and a pause has no time limit: drop the oldest messages above the
    // limit.
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
      // Keep the removed entries of the shown topic, so that there is no gap between history and
      // the newest.
      const topic = this.narrowed.peek();
      if (this._older.length || this.loading) {
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
