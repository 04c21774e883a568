'use client';

/** React hooks of the client. */

import type { ReactNode } from 'react';

import type { PubSub } from '../client.js';
import type { Allowed, PayloadOf, StateName } from '../values.js';
import {
  type ConnectionView,
  type PresenceView,
  type TopicHandlers,
  type Topics,
  type TopicView,
  useConnection,
  useConnectionState,
  usePresence,
  useTopic,
} from './hooks.js';
import type { PendingMessage, PendingStatus, SendOptions } from './pending.js';
import { type ProviderProps, PubSubProvider, usePubSub } from './provider.js';
import type { TopicOptions } from './topic_store.js';
import { type StreamOptions, type StreamStatus, type StreamView, useStream } from './use_stream.js';

export type { TopicStatus } from './topic_store.js';
export type {
  ConnectionView,
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
  usePresence,
  usePubSub,
  useStream,
  useTopic,
};

/** The provider and the hooks, for the topics of one program. */
export interface Hooks<Map extends object> {
  readonly PubSubProvider: (props: ProviderProps<Map>) => ReactNode;
  readonly usePubSub: () => PubSub<Map>;
  readonly useTopic: <Topic extends string, Value = undefined>(
    topics: Topics<Topic & Allowed<Map, Topic>>,
    options?: TopicOptions & TopicHandlers<Value, PayloadOf<Map, Topic>>,
  ) => TopicView<PayloadOf<Map, Topic>> & { readonly value: Value };
  readonly useStream: (topic: string | null | undefined, options?: StreamOptions) => StreamView;
  readonly usePresence: (topic: string | null | undefined) => PresenceView;
  readonly useConnection: () => ConnectionView;
  readonly useConnectionState: () => StateName;
}

/** The same provider and hooks, typed by a map of topics to payloads as `PubSub<Map>` is. */
export function createHooks<Map extends object>(): Hooks<Map> {
  const hooks: unknown = {
    PubSubProvider,
    usePubSub,
    useTopic,
    useStream,
    usePresence,
    useConnection,
    useConnectionState,
  };
  return hooks as Hooks<Map>;
}
