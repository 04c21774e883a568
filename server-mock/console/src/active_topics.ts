/** The active topics, each with its publish rate. */

import { type Message, PermissionDenied, type PubSub, type TopicInfo } from '@hanzoai/pubsub';

import { notify } from './notices.js';
import { messagesBetween, RateSeries } from './rates.js';
import { everyWhileVisible, Signal } from './reactive.js';

const POLL = 2_000;
/** Maximum topics in the list. */
export const TOPICS_MAX = 300;

/** A topic of the list. */
export interface Topic {
  readonly name: string;
  readonly info: TopicInfo | undefined;
  readonly rates: RateSeries;
}

interface Known {
  info: TopicInfo | undefined;
  received: number;
  readonly rates: RateSeries;
}

/**
 * Polls the list of topics. If the identity may not list topics, it counts the received messages
 * instead.
 */
export class Topics {
  /** Sorted by name. */
  readonly list: Signal<readonly Topic[]> = new Signal<readonly Topic[]>([]);
  /** Whether the identity may list topics; undefined before the first answer. */
  readonly listed: Signal<boolean | undefined> = new Signal<boolean | undefined>(undefined);
  /** Whether there are more topics than the list shows. */
  readonly more: Signal<boolean> = new Signal(false);
  /** The rate of all known topics. */
  readonly all: RateSeries = new RateSeries();
  private readonly _known = new Map<string, Known>();
  private readonly _began = Date.now();
  private _asking = false;
  private _asked = false;
  private _prefix = '';
  private _lastTick = performance.now();

  constructor(private readonly _ps: PubSub) {
    everyWhileVisible(POLL, () => void this.poll());
  }

  /** Count a received message, unless it was replayed or the list of topics counts it. */
  seen({ topic, seq, timestamp }: Message): void {
    const known = this._known.get(topic) ?? this._learn(topic);
    const counts = this.listed.peek() === false ? timestamp > this._began : seq === undefined;
    if (known && counts) known.received += 1;
  }

  /** Request the list now, and measure the rates. */
  async poll(): Promise<void> {
    this._tick(await this._request());
  }

  /** If there are too many topics to list, list those whose names begin with this text. */
  async search(prefix: string): Promise<void> {
    this._prefix = prefix;
    if (!this.more.peek()) return;
    await this._request();
    this._show();
  }

  /** Returns whether all messages until now are counted. */
  private async _request(): Promise<boolean> {
    if (this._asking || this._ps.state !== 'connected') return false;
    this._asking = true;
    try {
      if (this.listed.peek() !== false) await this._ask();
      return true;
    } catch (error) {
      if (error instanceof PermissionDenied) this.listed.value = false;
      // Don't report the error: the connection state shows it.
      else if (this._ps.state === 'connected') notify(error);
    } finally {
      this._asking = false;
    }
    return false;
  }

  private async _ask(): Promise<void> {
    const wanted = (): string => (this.more.peek() ? this._prefix : '');
    let prefix: string;
    let infos: readonly TopicInfo[];
    do {
      prefix = wanted();
      infos = await this._ps.topics(prefix || undefined, { limit: TOPICS_MAX });
    } while (prefix !== wanted()); // the user has typed meanwhile
    this.listed.value = true;
    if (!prefix) this.more.value = infos.length >= TOPICS_MAX;
    const present = new Set(infos.map(({ topic }) => topic));
    for (const [topic, known] of this._known) {
      if (!present.has(topic) && (known.info || known.rates.quiet)) this._known.delete(topic);
    }
    for (const info of infos) {
      const known = this._known.get(info.topic) ?? this._learn(info.topic);
      if (!known) continue;
      // Of more topics than the list shows, one that appears in it is not new.
      const appeared = known.info === undefined && this._asked && !this.more.peek();
      known.received += appeared
        ? info.messages
        : messagesBetween(known.info?.position, info.position);
      known.info = info;
    }
    this._asked = true;
  }

  private _learn(topic: string): Known | undefined {
    if (this._known.size >= 2 * TOPICS_MAX) return undefined;
    const known: Known = { info: undefined, received: 0, rates: new RateSeries() };
    this._known.set(topic, known);
    return known;
  }

  private _tick(counted: boolean): void {
    if (!counted) {
      // What is published meanwhile counts with the next answer, over the whole time.
      for (const { rates } of this._known.values()) rates.push(0, 1);
      this.all.push(0, 1);
      this._show();
      return;
    }
    const at = performance.now();
    const seconds = (at - this._lastTick) / 1000;
    // At once after a reconnect: the rate of a moment says nothing.
    if (seconds * 1000 < POLL / 2) {
      this._show();
      return;
    }
    this._lastTick = at;
    let sum = 0;
    for (const known of this._known.values()) {
      known.rates.push(known.received, seconds);
      sum += known.received;
      known.received = 0;
    }
    this.all.push(sum, seconds);
    this._show();
  }

  private _show(): void {
    this.list.value = [...this._known]
      .map(([name, { info, rates }]) => ({ name, info, rates }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }
}
