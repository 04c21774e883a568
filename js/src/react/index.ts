'use client';

/** React hooks of the client. */

import type { ReactNode } from 'react';

import type { PubSub } from '../client.js';
import type { Allowed, Message, PayloadOf, StateName } from '../values.js';
import {
  type ConnectionView,
  type PresenceView,
  type TopicHandlers,
  type TopicView,
  useConnection,
  useConnectionState,
  usePresence,
  useTopic,
} from './hooks.js';
import type { PendingMessage, PendingStatus, SendOptions } from './pending.js';
import { type ProviderProps, PubSubProvider, usePubSub } from './provider.js';
import type { TopicOptions } from './topic_store.js';
import { type HistoryView, type HistoryViewOptions, useHistory } from './use_history.js';
import { type StreamOptions, type StreamStatus, type StreamView, useStream } from './use_stream.js';

export type { TopicStatus } from './topic_store.js';
export type {
  ConnectionView,
  HistoryView,
  HistoryViewOptions,
  PendingMessage,
  PendingStatus,
  PresenceView,
  ProviderProps,
  SendOptions,
  StreamOptions,
  StreamStatus,
  StreamView,
  TopicHandlers,
  TopicOptions,
  TopicView,
};
export {
  PubSubProvider,
  useConnection,
  useConnectionState,
  useHistory,
  usePresence,
  usePubSub,
  useStream,
  useTopic,
};

/** The provider and the hooks, for the topics of one program. */
export interface Hooks<Map extends object> {
  /** Provide a client for the components inside. */
  readonly PubSubProvider: (props: ProviderProps<Map>) => ReactNode;
  /**
   * The client of the nearest provider.
   *
   * @throws UsageError There is no provider.
   */
  readonly usePubSub: () => PubSub<Map>;
  /**
   * The newest messages of topics, up to a limit, and the state of the subscription.
   *
   * Components that use the same topics share one subscription, which stays for 500 ms after the
   * last one unmounts.
   */
  readonly useTopic: <Topic extends Allowed<Map>, Value = undefined>(
    topics: Topic | readonly Topic[] | null | undefined,
    options?: TopicOptions & TopicHandlers<Value, PayloadOf<Map, Topic>>,
  ) => TopicView<PayloadOf<Map, Topic>> & { readonly value: Value };
  /** The messages of a topic in order, with older ones page by page. */
  readonly useHistory: <Topic extends Allowed<Map>>(
    topic: Topic | null | undefined,
    live?: readonly Message<PayloadOf<Map, Topic>>[],
    options?: HistoryViewOptions,
  ) => HistoryView<PayloadOf<Map, Topic>>;
  /** Follow a stream: its text grows with the frames of the page. */
  readonly useStream: (topic: string | null | undefined, options?: StreamOptions) => StreamView;
  /** The members of a topic. The subscription makes this client a member. */
  readonly usePresence: (topic: string | null | undefined) => PresenceView;
  /** The state of the client, why it is not connected, and a function to try again. */
  readonly useConnection: () => ConnectionView;
  /** The state of the client. */
  readonly useConnectionState: () => StateName;
}

/** The same provider and hooks, typed by a map of topics to payloads as `PubSub<Map>` is. */
export function createHooks<Map extends object>(): Hooks<Map> {
  const hooks: unknown = {
    PubSubProvider,
    usePubSub,
    useTopic,
    useHistory,
    useStream,
    usePresence,
    useConnection,
    useConnectionState,
  };
  return hooks as Hooks<Map>;
}
