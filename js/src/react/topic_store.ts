/** The state of one set of topics for components: one shared subscription, rendered per frame. */

import type { PubSub } from '../client.js';
import { AuthError, fromCode, type PubSubError } from '../errors.js';
import type { SubscribeOptions } from '../runtime/subscribing.js';
import type { Subscription } from '../runtime/subscription.js';
import { codeOf } from '../session/events.js';
import type {
  AnyPayload,
  Gap,
  Message,
  Outgoing,
  PresenceMember,
  StateChange,
  SubscriptionEvent,
} from '../values.js';
import { type PendingMessage, PendingMessages, type SendOptions } from './pending.js';

/** Milliseconds for which a subscription that no component uses is kept for the next one. */
export const LINGER = 500;

/** Default limit of messages. */
const LIMIT = 100;

/** Milliseconds to wait for the server's answer, including outages: a day. */
const PATIENCE = 86_400_000;

/** State of a subscription: not requested, in progress, active, or ended by an error. */
export type TopicStatus = 'idle' | 'joining' | 'live' | 'failed';

/** The current view of one set of topics. */
export interface TopicState<Data = AnyPayload> {
  /** The newest messages, oldest first. */
  readonly messages: readonly Message<Data>[];
  /**
   * Messages that `send` published and that are not in `messages` yet, in the order of sending. A
   * message leaves this list in the same rendering in which it arrives.
   */
  readonly pending: readonly PendingMessage<Data>[];
  /** The newest message. */
  readonly last: Message<Data> | undefined;
  /** The newest gap: messages that could not be delivered. */
  readonly gap: Gap | undefined;
  /** The members, by client id. */
  readonly members: ReadonlyMap<string, PresenceMember>;
  /**
   * `idle` without a topic, `joining` before the server has answered and while there is no
   * connection, `live`, or `failed` with an `error`.
   */
  readonly status: TopicStatus;
  /**
   * With the status `failed`, why the subscription ended. With another status, an `AuthError`: the
   * server rejects the token, or `getToken` failed; the client keeps trying.
   */
  readonly error: PubSubError | undefined;
}

/** The initial view, also for server-side rendering. */
export const IDLE: TopicState = {
  messages: [],
  pending: [],
  last: undefined,
  gap: undefined,
  members: new Map(),
  status: 'idle',
  error: undefined,
};

/** Options of a component. If several components use the same topics, those of the first apply. */
export interface TopicOptions extends Pick<SubscribeOptions, 'since' | 'history' | 'after'> {
  /**
   * Maximum number of messages kept; default: 100, or `history` if it is larger. The largest value
   * of several components applies.
   */
  readonly limit?: number | undefined;
}

/** @internal Schedules rendering and timers. */
export interface Pace {
  /** Call a function with the next frame. Idempotent. */
  frame(callback: () => void): void;
  /** Call a function later; returns a function that cancels it. */
  later(milliseconds: number, callback: () => void): () => void;
}

/** @internal Follows the messages of a store. */
export interface Follower {
  /** Called with each message, in order. */
  message(message: Message): void;
  /** Called before each rendering. */
  drawn(): void;
}

/** @internal One set of topics for components. */
export interface TopicStore {
  /** The current view. */
  readonly state: TopicState;
  /**
   * Use it for messages, or (undefined) only for presence.
   *
   * The subscription begins after all components of the same rendering have registered.
   *
   * @param changed Called with each rendering; a function that no other use has.
   * @returns Ends the use.
   */
  use(wish: TopicOptions | undefined, changed: () => void): () => void;
  /** Pass the messages to a follower, which does not count as a use; returns a function that ends it. */
  follow(follower: Follower): () => void;
  /** The newest messages that have already arrived. */
  readonly held: readonly Message[];
  /** Restart a failed subscription from its positions. */
  retry(): void;
  /** Publish a message, and show it as pending until it is delivered; see `TopicView.send`. */
  send(message: Outgoing, options?: SendOptions): string;
}

/** One subscription of a store. */
interface Part {
  /** Start of its messages; undefined for presence only. */
  readonly from: TopicOptions | undefined;
  readonly withPresence: boolean;
  /** Whether another subscription determines the status, unless this one fails. */
  readonly beside: boolean;
}

/**
 * @internal Create the store of one set of topics.
 *
 * @param client The client.
 * @param topics Topics or patterns.
 * @param pace Schedules rendering and timers.
 * @param ended Called when no component has used it for a while.
 */
export function createStore(
  client: Pick<PubSub, 'subscribe' | 'publish' | 'on' | 'state' | 'lastFailure'>,
  topics: readonly string[],
  pace: Pace,
  ended: () => void,
): TopicStore {
  const listeners = new Set<() => void>();
  const followers = new Set<Follower>();
  const over = new AbortController();
  const present = new Map<string, readonly PresenceMember[]>();
  let state = IDLE;
  let next: Partial<TopicState> | undefined;
  let arrived: Message[] = [];
  let first: TopicOptions | undefined;
  let limit = 0;
  let presence = false;
  let reads = false;
  let watches = false;
  const failed: Part[] = [];
  /** Whether the server has answered the subscription that determines the status. */
  let joined = false;
  let keep = (): void => {};

  const draw = (): void => {
    if (!next) return;
    let { messages } = state;
    if (arrived.length) {
      messages = [...messages, ...arrived];
      messages = messages.slice(Math.max(0, messages.length - limit));
      arrived = [];
    }
    state = { ...state, ...next, messages };
    next = undefined;
    for (const follower of followers) follower.drawn();
    for (const listener of listeners) listener();
  };

  /** Change the view with the next frame. */
  const show = (change: Partial<TopicState>): void => {
    if (!next) pace.frame(draw);
    next = { ...next, ...change };
  };

  /** Show the status, unless a subscription has failed. */
  const refresh = (): void => {
    if (failed.length) return;
    const error = tokenError(client.lastFailure);
    show({
      status: joined && client.state === 'connected' ? 'live' : 'joining',
      // The same trouble is the same object, so that effects of a component do not run again.
      error: error?.message === state.error?.message ? state.error : error,
    });
  };

  const pending = new PendingMessages(client, String(topics), () =>
    show({ pending: pending.list() }),
  );

  const take = (event: SubscriptionEvent): void => {
    if (event.kind === 'message') {
      arrived.push(event.message);
      pending.message(event.message);
      // A copy: a follower that begins meanwhile has the message already.
      for (const follower of [...followers]) {
        try {
          follower.message(event.message);
        } catch (error) {
          // An error of the program does not end the subscription.
          queueMicrotask(() => {
            throw error;
          });
        }
      }
      // Hidden pages rarely draw frames.
      if (arrived.length > limit) arrived.shift();
      show({ last: event.message });
    } else if (event.kind === 'gap') {
      pending.gap(event.gap);
      show({ gap: event.gap });
    }
  };

  const subscribe = async (part: Part) => {
    const { from, withPresence, beside } = part;
    const { signal } = over;
    const { limit: _, ...options } = from ?? {};
    let subscription: Subscription | undefined;
    const stop = client.on('state', refresh);
    try {
      joined &&= beside;
      refresh();
      subscription = await client.subscribe(topics, {
        ...options,
        presence: withPresence,
        signal,
        timeout: PATIENCE,
      });
      joined ||= !beside;
      refresh();
      for await (const event of subscription.events()) {
        if (event.kind === 'presence') {
          const { topic, members: those } = event.presence;
          // A pattern may match ever new topics.
          if (those.length) present.set(topic, those);
          else present.delete(topic);
          const members = [...present.values()].flat();
          show({ members: new Map(members.map((member) => [member.client_id, member])) });
        } else if (from) {
          take(event);
        }
      }
      if (!beside) show({ status: 'idle', error: undefined });
    } catch (error) {
      if (signal.aborted) return;
      show({ status: 'failed', error: error as PubSubError });
      const after = subscription?.positions ?? {};
      failed.push(from && Object.keys(after).length ? { ...part, from: { after } } : part);
    } finally {
      stop();
    }
    if (!withPresence) return;
    // No remaining subscription reports presence.
    present.clear();
    show({ members: IDLE.members });
  };

  const begin = (): void => {
    const from = reads ? undefined : first;
    const watch = presence && !watches;
    if (!listeners.size || !(from || watch)) return;
    void subscribe({ from, withPresence: watch, beside: reads });
    reads ||= !!from;
    watches ||= watch;
  };

  return {
    get state() {
      return state;
    },
    use(wish, changed) {
      listeners.add(changed);
      keep();
      if (wish) {
        first ??= wish;
        limit = Math.max(limit, wish.limit ?? Math.max(LIMIT, wish.history ?? 0));
      } else {
        presence = true;
      }
      queueMicrotask(begin);
      return () => {
        listeners.delete(changed);
        if (listeners.size) return;
        keep = pace.later(LINGER, () => {
          over.abort();
          ended();
        });
      };
    },
    send: (message, options) => pending.send(message, options),
    follow(follower) {
      followers.add(follower);
      return () => followers.delete(follower);
    },
    get held() {
      return [...state.messages, ...arrived];
    },
    retry() {
      for (const part of failed.splice(0)) void subscribe(part);
    },
  };
}

/** The error of a client's last failure, if it is about the token. */
function tokenError(failure: StateChange | undefined): AuthError | undefined {
  const error = failure && fromCode(codeOf(failure.code), failure.reason);
  return error instanceof AuthError ? error : undefined;
}
