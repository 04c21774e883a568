/** The watched patterns, each with its own subscription. */

import {
  type Message,
  matches,
  type PubSub,
  PubSubError,
  type Subscription,
  validatePattern,
} from '@hanzoai/pubsub';

import type { Feed } from './messages/feed.js';
import { notify, problemOf } from './notices.js';
import type { People } from './presence.js';
import { Signal } from './reactive.js';
import { recall, remember } from './storage.js';

/** Messages of each topic that a new subscription replays. */
const HISTORY = 30;
/** Maximum watched patterns. */
const WATCHES_MAX = 40;
const PATIENCE = 3_600_000;
const QUEUE = { messages: 20_000, bytes: 64 * 1024 * 1024 };
const KEY = 'watched';

/** A watched pattern. */
export interface Watch {
  readonly pattern: string;
  readonly state: 'joining' | 'active' | 'refused';
  /** Why the server denied it. */
  readonly reason?: string;
}

/** The subscriptions of the page. */
export class Watches {
  readonly list: Signal<readonly Watch[]> = new Signal<readonly Watch[]>([]);
  private readonly _aborts = new Map<string, AbortController>();

  constructor(
    private readonly _ps: PubSub,
    private readonly _feed: Feed,
    private readonly _people: People,
    private readonly _seen: (message: Message) => void,
  ) {}

  /** The patterns that this tab watched before it was reloaded. */
  static before(): readonly string[] | undefined {
    const kept = recall('sessionStorage', KEY);
    return kept === undefined ? undefined : kept.split(' ').filter(Boolean).slice(0, WATCHES_MAX);
  }

  /** Whether a subscription already delivers the messages of a topic. */
  covers(topic: string): boolean {
    return this.list
      .peek()
      .some(({ pattern, state }) => state !== 'refused' && matches(pattern, topic));
  }

  /**
   * Watch a pattern.
   *
   * @throws InvalidTopic The pattern is not valid.
   */
  add(pattern: string): void {
    validatePattern(pattern);
    if (this._aborts.has(pattern)) return;
    if (this._aborts.size >= WATCHES_MAX) {
      throw new PubSubError(
        'subscription_limit',
        `The console watches at most ${WATCHES_MAX} patterns.`,
      );
    }
    const abort = new AbortController();
    this._aborts.set(pattern, abort);
    this.list.value = [
      ...this.list.peek().filter((each) => each.pattern !== pattern),
      { pattern, state: 'joining' },
    ];
    this._keep();
    void this._follow(pattern, abort.signal);
  }

  /** Stop watching a pattern. */
  remove(pattern: string): void {
    this._aborts.get(pattern)?.abort();
    this._aborts.delete(pattern);
    this.list.value = this.list.peek().filter((each) => each.pattern !== pattern);
    this._people.forget(
      pattern,
      this.list.peek().map((each) => each.pattern),
    );
    this._keep();
  }

  private async _follow(pattern: string, signal: AbortSignal): Promise<void> {
    try {
      const sub: Subscription = await this._ps.subscribe(pattern, {
        history: HISTORY,
        presence: true,
        queue: QUEUE,
        timeout: PATIENCE,
        signal,
      });
      this._mark({ pattern, state: 'active' });
      for await (const event of sub.events()) {
        if (event.kind === 'message') {
          this._seen(event.message);
          this._feed.message(event.message);
        } else if (event.kind === 'gap') this._feed.gap(event.gap);
        else this._people.take(pattern, event.presence);
      }
    } catch (error) {
      if (signal.aborted) return;
      const { code } = problemOf(error);
      this._aborts.delete(pattern);
      if (code === 'closed') return;
      this._mark({ pattern, state: 'refused', reason: problemOf(error).message });
      notify(error);
    }
  }

  private _mark(watch: Watch): void {
    this.list.value = this.list
      .peek()
      .map((each) => (each.pattern === watch.pattern ? watch : each));
  }

  private _keep(): void {
    const patterns = this.list.peek().map((each) => each.pattern);
    remember('sessionStorage', KEY, patterns.join(' '));
  }
}
