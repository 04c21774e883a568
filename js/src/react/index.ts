'use client';

/** React hooks of the client. */

import type { ReactNode } from 'react';

import type { PubSub } from '../client.js';
import type { Allowed, PayloadOf, StateName } from '../values.js';
import {
  type ConnectionView,
  type PresenceView,
  type Topics,
  type TopicView,
  useConnection,
  useConnectionState,
  usePresence,
  useTopic,
} from './hooks.js';
import { type ProviderProps, PubSubProvider, usePubSub } from './provider.js';
import type { TopicOptions } from './topic_store.js';

export type { TopicStatus } from './topic_store.js';
export type { ConnectionView, PresenceView, ProviderProps, TopicOptions, TopicView };
export { PubSubProvider, useConnection, useConnectionState, usePresence, usePubSub, useTopic };

/** The provider and the hooks, for the topics of one program. */
export interface Hooks<Map extends object> {
  readonly PubSubProvider: (props: ProviderProps<Map>) => ReactNode;
  readonly usePubSub: () => PubSub<Map>;
  readonly useTopic: <Topic extends string>(
    topics: Topics<Topic & Allowed<Map, Topic>>,
    options?: TopicOptions,
  ) => TopicView<PayloadOf<Map, Topic>>;
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
    usePresence,
    useConnection,
    useConnectionState,
  };
  return hooks as Hooks<Map>;
}
