/** The hooks that components call. */

import { useCallback, useMemo, useRef, useSyncExternalStore } from 'react';

import type { PubSub } from '../client.js';
import { type PubSubError, UsageError } from '../errors.js';
import type { PublishOptions } from '../runtime/publishing.js';
import type { Waiting } from '../runtime/waiting.js';
import { usersOf } from '../users.js';
import type {
  AnyPayload,
  JsonObject,
  Message,
  Outgoing,
  PresenceMember,
  Published,
  StateChange,
  StateName,
} from '../values.js';
import type { SendOptions } from './pending.js';
import { hasEnded, usePlace, usePubSub } from './provider.js';
import { findStore, keyOf, openStore } from './stores.js';
import {
  IDLE,
  type TopicOptions,
  type TopicState,
  type TopicStatus,
  type TopicStore,
} from './topic_store.js';

/** Result of `useTopic`. */
export interface TopicView<Data = AnyPayload> extends Omit<TopicState<Data>, 'members'> {
  /** Publish to the topic. The function stays the same while the topic stays the same. */
  readonly publish: (message: Outgoing<Data>, options?: PublishOptions) => Promise<Published>;
  /**
   * Publish to the topic, and show the message in `pending` at once; returns its id. The function
   * does not wait: a message that fails stays in `pending` with its error, `retry` and `discard`.
   *
   * @throws UsageError The component is not mounted, or 1,000 messages are pending.
   */
  readonly send: (message: Outgoing<Data>, options?: SendOptions) => string;
  /** Subscribe again if the status is `failed`; see `ConnectionView.retry`. */
  readonly retry: () => void;
}

/** Options of `useTopic` that apply to one component. */
export interface TopicHandlers<Value, Data = AnyPayload> {
  /**
   * Called once with each message, in order, while the component is mounted, even if several
   * messages arrive between two frames.
   */
  readonly onMessage?: ((message: Message<Data>) => void) | undefined;
  /**
   * Computes `value` from the previous value and the next message: first for the messages that have
   * already arrived, then for each new one.
   */
  readonly reduce?: ((value: Value, message: Message<Data>) => Value) | undefined;
  /** `value` before any message. */
  readonly initial?: Value | undefined;
}

/** Result of `usePresence`. */
export interface PresenceView {
  /** All members, by client id. */
  readonly members: ReadonlyMap<string, PresenceMember>;
  /** Each present user once, by the connection that joined first. */
  readonly users: readonly PresenceMember[];
  /** As in `TopicView`. */
  readonly status: TopicStatus;
  /** As in `TopicView`. */
  readonly error: PubSubError | undefined;
  /** Change what others see of this client on the topic. */
  readonly update: (data: JsonObject, options?: Waiting) => Promise<void>;
  /** Subscribe again if the status is `failed`; see `ConnectionView.retry`. */
  readonly retry: () => void;
}

/** Result of `useConnection`. */
export interface ConnectionView {
  /** The state of the client. */
  readonly state: StateName;
  /** Why the client is not connected: the reason why the last connection or attempt failed. */
  readonly failure: StateChange | undefined;
  /**
   * Replace the client if it failed or was closed, and the provider created it. While the client is
   * still trying, this has no effect.
   */
  readonly retry: () => void;
}

/**
 * The newest messages of topics, up to a limit, and the state of the subscription.
 *
 * Components that use the same topics share one subscription, which stays for 500 ms after the last
 * one unmounts.
 */
export function useTopic<Value = undefined>(
  topics: string | readonly string[] | null | undefined,
  options: TopicOptions & TopicHandlers<Value> = {},
): TopicView & { readonly value: Value } {
  const client = usePubSub();
  const key = keyOf(topics);
  const { onMessage, reduce, initial, ...wish } = options;
  const state = useStore(key, wish);
  const value = useReduced(key, onMessage, reduce, initial as Value);
  const retry = useRetry(key);
  const publish = useCallback<TopicView['publish']>(
    (message, given) => client.publish(topicOf(key), message, given),
    [client, key],
  );
  const send = useCallback<TopicView['send']>(
    (message, given) => storeOf(client, key).send(message, given),
    [client, key],
  );
  return useMemo(
    () => ({ ...state, value, publish, send, retry }),
    [state, value, publish, send, retry],
  );
}

/** The reduced value of a store's messages at the last frame. */
function useReduced<Value>(
  key: string,
  onMessage: TopicHandlers<Value>['onMessage'],
  reduce: TopicHandlers<Value>['reduce'],
  initial: Value,
): Value {
  const client = usePubSub();
  const given = useRef({ onMessage, reduce, initial });
  given.current = { onMessage, reduce, initial };
  const isAsked = Boolean(onMessage || reduce);
  // One value for each topic: another topic begins with `initial`.
  const { listen, read } = useMemo(() => {
    let shown = given.current.initial;
    const listen = (changed: () => void): (() => void) => {
      if (!key || !isAsked) return () => {};
      const store = openStore(client, key);
      let value = given.current.initial;
      const fold = (message: Message): void => {
        const { reduce } = given.current;
        if (reduce) value = reduce(value, message);
      };
      const drawn = (): void => {
        shown = value;
        changed();
      };
      store.held.forEach(fold);
      drawn();
      return store.follow({
        message(message) {
          fold(message);
          given.current.onMessage?.(message);
        },
        drawn,
      });
    };
    return { listen, read: () => shown };
  }, [client, key, isAsked]);
  return useSyncExternalStore(listen, read, () => initial);
}

/** The members of a topic. The subscription makes this client a member. */
export function usePresence(topic: string | null | undefined): PresenceView {
  const client = usePubSub();
  const key = keyOf(topic);
  const { members, status, error } = useStore(key, undefined);
  const retry = useRetry(key);
  const update = useCallback<PresenceView['update']>(
    (data, options) => client.updatePresence(topicOf(key), data, options),
    [client, key],
  );
  const users = useMemo(() => usersOf(members.values()), [members]);
  return useMemo(
    () => ({ members, users, status, error, update, retry }),
    [members, users, status, error, update, retry],
  );
}

/** The state of the client. */
export function useConnectionState(): StateName {
  return useOfClient(({ state }) => state, 'initialized');
}

/** The state of the client, why it is not connected, and a function to try again. */
export function useConnection(): ConnectionView {
  const state = useConnectionState();
  const failure = useOfClient(({ lastFailure }) => lastFailure, undefined);
  const retry = useRetry('');
  return useMemo(() => ({ state, failure, retry }), [state, failure, retry]);
}

/** A value that depends on the state of the client. */
function useOfClient<T>(read: (client: PubSub) => T, before: T): T {
  const client = usePubSub();
  const listen = useCallback((changed: () => void) => client.on('state', changed), [client]);
  return useSyncExternalStore(
    listen,
    () => read(client),
    () => before,
  );
}

/** Restart the client if it has ended, otherwise the subscription of a key. */
function useRetry(key: string): () => void {
  const { client, renew } = usePlace();
  return useCallback(() => {
    if (hasEnded(client)) renew();
    else findStore(client, key)?.retry();
  }, [client, renew, key]);
}

/** The store of a key, used by a mounted component. */
function storeOf(client: PubSub, key: string): TopicStore {
  const store = findStore(client, key);
  if (store) return store;
  throw new UsageError('`send` was called without a topic, or by a component that has unmounted.', {
    remedy: 'Call it while the component shows the topic; elsewhere, call `publish`.',
  });
}

/** The topic of a key with one topic; otherwise text that is not a topic. */
function topicOf(key: string): string {
  return key && String(JSON.parse(key));
}

function useStore(key: string, options: TopicOptions | undefined): TopicState {
  const client = usePubSub();
  // Options are read when the topics change.
  const listen = useCallback(
    (changed: () => void) => (key ? openStore(client, key).use(options, changed) : () => {}),
    [client, key],
  );
  return useSyncExternalStore(
    listen,
    () => findStore(client, key)?.state ?? IDLE,
    () => IDLE,
  );
}
