/** What components show of one set of topics: one subscription for all of them, drawn by frames. */

import type { PubSub } from '../client.js';
import type { SubscribeOptions } from '../runtime/subscribing.js';
import type { AnyPayload, Gap, Message, PresenceMember } from '../values.js';

/** Milliseconds for which a subscription that no component uses is kept for the next one. */
export const LINGER = 500;

/** Messages kept where a component names no limit. */
const LIMIT = 100;

/** Until the server answers, however long there is no connection; milliseconds, a day. */
const PATIENCE = 86_400_000;

/** How far a subscription is: not asked for, on its way, there, or ended by an error. */
export type TopicStatus = 'idle' | 'joining' | 'live' | 'failed';

/** What is shown of one set of topics at one time. */
export interface TopicState<Data = AnyPayload> {
  /** The newest messages, oldest first. */
  readonly messages: readonly Message<Data>[];
  /** The newest message. */
  readonly last: Message<Data> | undefined;
  /** The newest gap: messages that could not be delivered. */
  readonly gap: Gap | undefined;
  /** Who is present, by client id. */
  readonly members: ReadonlyMap<string, PresenceMember>;
  readonly status: TopicStatus;
  /** Why it ended, where the status is `failed`. */
  readonly error: Error | undefined;
}

/** What is shown before anything is known, and on a server. */
export const IDLE: TopicState = {
  messages: [],
  last: undefined,
  gap: undefined,
  members: new Map(),
  status: 'idle',
  error: undefined,
};

/** What a component asks for; of several that use the same topics, the first says where to begin. */
export interface TopicOptions extends Pick<SubscribeOptions, 'since' | 'history' | 'after'> {
  /** Messages kept; default 100. Of several components, the largest. */
  readonly limit?: number | undefined;
}

/** When things happen. */
export interface Pace {
  /** Call a function once, when something can be drawn. */
  frame(callback: () => void): void;
  /** Call a function later; returns what stops it. */
  later(milliseconds: number, callback: () => void): () => void;
}

/** One set of topics. */
export class TopicStore {
  state: TopicState = IDLE;
  private readonly _listeners = new Set<() => void>();
  private readonly _over = new AbortController();
  private _wish: TopicOptions | undefined;
  private _limit = 0;
  private _presence = false;
  private _reads = false;
  private _watches = false;
  private _stay: (() => void) | undefined;
  private _arrived: Message[] = [];
  private readonly _members = new Map<string, readonly PresenceMember[]>();
  private _next: Partial<TopicState> | undefined;

  /**
   * @param _client Whose.
   * @param _topics Topics or patterns.
   * @param _pace When things are shown and ended.
   * @param _ended Called when no component has used it for a while.
   */
  constructor(
    private readonly _client: Pick<PubSub, 'subscribe'>,
    private readonly _topics: readonly string[],
    private readonly _pace: Pace,
    private readonly _ended: () => void,
  ) {}

  /**
   * Use it, for messages or (undefined) for presence alone.
   *
   * The subscription begins when all components that come at once have said what they want.
   *
   * @returns Ends the use.
   */
  use(wish: TopicOptions | undefined, changed: () => void): () => void {
    const listener = (): void => changed();
    this._listeners.add(listener);
    this._stay?.();
    if (wish) {
      this._wish ??= wish;
      this._limit = Math.max(this._limit, wish.limit ?? LIMIT);
    } else {
      this._presence = true;
    }
    queueMicrotask(() => this._begin());
    return () => {
      this._listeners.delete(listener);
      if (!this._listeners.size) this._stay = this._pace.later(LINGER, () => this._end());
    };
  }

  // ---------------------------------------------------------------- inside

  private _begin(): void {
    if (!this._listeners.size) return;
    const reads = this._wish !== undefined && !this._reads;
    const watches = this._presence && !this._watches;
    if (!reads && !watches) return;
    // Presence that is asked for later says nothing of the messages that come already.
    const shows = reads || !this._reads;
    this._reads ||= reads;
    this._watches ||= watches;
    void this._subscribe(reads, watches, shows);
  }

  private async _subscribe(reads: boolean, presence: boolean, shows: boolean): Promise<void> {
    const { signal } = this._over;
    const { limit: _, ...from } = (reads && this._wish) || {};
    try {
      if (shows) this._show({ status: 'joining' });
      const options = { ...from, presence, signal, timeout: PATIENCE };
      const subscription = await this._client.subscribe(this._topics, options);
      if (shows) this._show({ status: 'live' });
      for await (const event of subscription.events()) {
        if (event.kind === 'presence') {
          const { topic, members } = event.presence;
          this._members.set(topic, members);
          const all = [...this._members.values()].flat();
          this._show({ members: new Map(all.map((member) => [member.client_id, member])) });
        } else if (reads && event.kind === 'gap') {
          this._show({ gap: event.gap });
        } else if (reads && event.kind === 'message') {
          this._arrived.push(event.message);
          // Pages that are hidden draw seldom.
          if (this._arrived.length > this._limit) this._arrived.shift();
          this._show({ last: event.message });
        }
      }
    } catch (error) {
      if (!signal.aborted) this._show({ status: 'failed', error: error as Error });
    }
  }

  /** Change what is shown, with the next frame. */
  private _show(change: Partial<TopicState>): void {
    if (!this._next) this._pace.frame(() => this._draw());
    this._next = { ...this._next, ...change };
  }

  private _draw(): void {
    let { messages } = this.state;
    if (this._arrived.length) {
      messages = [...messages, ...this._arrived];
      messages = messages.slice(Math.max(0, messages.length - this._limit));
      this._arrived = [];
    }
    this.state = { ...this.state, ...this._next, messages };
    this._next = undefined;
    for (const listener of this._listeners) listener();
  }

  private _end(): void {
    this._over.abort();
    this._ended();
  }
}
