/** View of one topic for a page that loads older messages; shared by all frameworks. */

import { DEVELOPMENT } from '../build.js';
import type { PubSub } from '../client.js';
import type { PubSubError } from '../errors.js';
import { checkNames, checkNumber } from '../settings/checks.js';
import type { AnyPayload, Message } from '../values.js';
import { join, keyOf, prepend } from './timeline.js';

/** Messages of a page of history, unless the options state another number. */
const PAGE = 50;

/** Messages that a view keeps while further ones arrive. */
const LIMIT = 1_000;

/** The view of a topic with its older messages. */
export interface HistoryState<Data = AnyPayload> {
  /** Loaded messages and those that have arrived, oldest first, each once. */
  readonly messages: readonly Message<Data>[];
  /** Whether the server may have older ones. */
  readonly hasOlder: boolean;
  /** Whether a page is loading. */
  readonly loadingOlder: boolean;
  /** Why the last page could not be loaded; `loadOlder` tries again. */
  readonly error: PubSubError | undefined;
}

/** Loads older messages. */
export interface HistoryControls {
  /**
   * Load one page of older messages. The promise is settled when they are shown, and never rejects:
   * `error` is the reason of a failure. While a page is loading, this has no further effect.
   */
  readonly loadOlder: () => Promise<void>;
}

/** Options of a view. */
export interface HistoryViewOptions {
  /** Messages per page, 1 to 10,000; default 50. */
  readonly page?: number | undefined;
  /**
   * Number of messages from which each further one that arrives removes the oldest, at least 1;
   * default 1,000. Loading is not limited.
   */
  readonly limit?: number | undefined;
}

/** @internal The view without a topic. */
export const IDLE: HistoryState = {
  messages: [],
  hasOlder: false,
  loadingOlder: false,
  error: undefined,
};

/** @internal The state with the messages that have arrived; the same object if none is new. */
export function extend(
  state: HistoryState,
  live: readonly Message[],
  limit: number = LIMIT,
): HistoryState {
  const { messages: known, hasOlder } = state;
  const { messages, isCut } = join(known, live);
  if (messages === known) return state;
  const over = Math.min(messages.length - limit, messages.length - known.length);
  const cut = !isCut && known.length && over > 0 ? over : 0;
  return { ...state, messages: messages.slice(cut), hasOlder: hasOlder || isCut || cut > 0 };
}

/** @internal A displayed topic. */
export class HistoryView implements HistoryControls {
  private _state: HistoryState;
  private _loading: Promise<void> | undefined;
  private _abort = new AbortController();
  private readonly _listeners = new Set<() => void>();

  /**
   * @param _client The client.
   * @param _topic A topic without wildcards; undefined shows nothing.
   * @throws InvalidOption An option is unknown or out of range; only in the development build.
   */
  constructor(
    private readonly _client: PubSub,
    private readonly _topic: string | null | undefined,
    private readonly _options: HistoryViewOptions,
  ) {
    if (DEVELOPMENT) checkNames('options', _options, ['page', 'limit']);
    const { page = PAGE, limit = LIMIT } = _options;
    if (DEVELOPMENT) {
      checkNumber('page', page, [1, 10_000, 'a number of messages']);
      checkNumber('limit', limit, [1, Number.MAX_SAFE_INTEGER, 'a number of messages']);
    }
    this._state = { ...IDLE, hasOlder: Boolean(_topic) };
  }

  /**
   * Call a function after each change, until the returned function is called. Without any function,
   * a page that is loading is cancelled.
   */
  readonly listen = (changed: () => void): (() => void) => {
    this._listeners.add(changed);
    return () => {
      this._listeners.delete(changed);
      if (this._listeners.size) return;
      this._abort.abort();
      // The next use may load at once, before the cancelled request has ended.
      this._loading = undefined;
      this._change({ loadingOlder: false });
    };
  };

  /** The state without messages that have arrived since `keep`. */
  readonly read = (): HistoryState => this._state;

  /** The state with messages of this topic that have arrived. */
  extended(live: readonly Message[], state: HistoryState = this._state): HistoryState {
    if (!this._topic) return IDLE;
    // A framework may change the topic before the messages.
    const own = live.filter(({ topic }) => topic === this._topic);
    return extend(state, own, this._options.limit);
  }

  /** Keep messages that have arrived, because later lists may no longer have them. */
  keep(live: readonly Message[]): void {
    this._state = this.extended(live);
  }

  readonly loadOlder = (): Promise<void> => {
    if (this._loading) return this._loading;
    const loading = this._load().finally(() => {
      if (this._loading === loading) this._loading = undefined;
    });
    this._loading = loading;
    return loading;
  };

  private async _load(): Promise<void> {
    const topic = this._topic;
    if (!topic || !this._state.hasOlder) return;
    this._abort = new AbortController();
    const { signal } = this._abort;
    const { page = PAGE } = this._options;
    this._change({ loadingOlder: true, error: undefined });
    // History does not have messages with `ttl` 0.
    const before = this._state.messages.find(({ ttl }) => ttl !== 0);
    let change: Partial<HistoryState>;
    try {
      const older: Message[] = [];
      // One more message shows whether there are older ones.
      const messages = this._client.history(topic, { before, limit: page + 1, signal });
      for await (const message of messages) older.push(message);
      const hasOlder = older.length > page;
      change = this._joined(before, hasOlder ? older.slice(1) : older, hasOlder);
    } catch (error) {
      change = { error: error as PubSubError };
    }
    // After the end of the last use, another page may be loading.
    if (!signal.aborted) this._change({ ...change, loadingOlder: false });
  }

  private _joined(
    before: Message | undefined,
    page: readonly Message[],
    hasOlder: boolean,
  ): Partial<HistoryState> {
    const { messages } = this._state;
    if (!before) {
      const { messages: all, isCut } = join(page, messages);
      return { messages: all, hasOlder: hasOlder || isCut };
    }
    if (messages.some((message) => keyOf(message) === keyOf(before))) {
      return { messages: prepend(page, messages), hasOlder };
    }
    // Messages were missing meanwhile, and the page no longer joins the others.
    return {};
  }

  private _change(change: Partial<HistoryState>): void {
    this._state = { ...this._state, ...change };
    for (const changed of this._listeners) changed();
  }
}
