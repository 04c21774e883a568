/** What components call. */

import { useCallback, useMemo, useSyncExternalStore } from 'react';

import type { PublishOptions } from '../runtime/publishing.js';
import type { Waiting } from '../runtime/waiting.js';
import type {
  AnyPayload,
  JsonObject,
  Outgoing,
  PresenceMember,
  Published,
  StateName,
} from '../values.js';
import { usePubSub } from './provider.js';
import { findStore, keyOf, openStore } from './stores.js';
import { IDLE, type TopicOptions, type TopicState, type TopicStatus } from './topic_store.js';

/** A topic or pattern, several, or none for the time being. */
export type Topics<Topic extends string = string> = Topic | readonly Topic[] | null | undefined;

/** What `useTopic` gives. */
export interface TopicView<Data = AnyPayload> extends Omit<TopicState<Data>, 'members'> {
  /** Publish to the topic; the function stays the same while the topic does. */
  readonly publish: (message: Outgoing<Data>, options?: PublishOptions) => Promise<Published>;
}

/** What `usePresence` gives. */
export interface PresenceView {
  /** Who is present, by client id. */
  readonly members: ReadonlyMap<string, PresenceMember>;
  readonly status: TopicStatus;
  readonly error: Error | undefined;
  /** Change how this client appears on the topic. */
  readonly update: (data: JsonObject, options?: Waiting) => Promise<void>;
}

/**
 * Messages of topics: the newest, bounded, and how the subscription stands.
 *
 * Components that use the same topics share one subscription, which outlives the last of them by
 * 500 ms.
 */
export function useTopic(topics: Topics, options: TopicOptions = {}): TopicView {
  const client = usePubSub();
  const key = keyOf(topics);
  const state = useStore(key, options);
  const publish = useCallback<TopicView['publish']>(
    (message, given) => client.publish(topicOf(key), message, given),
    [client, key],
  );
  return useMemo(() => ({ ...state, publish }), [state, publish]);
}

/** Who is present on a topic; by a subscription to exactly the topic, this client is. */
export function usePresence(topic: string | null | undefined): PresenceView {
  const client = usePubSub();
  const key = keyOf(topic);
  const { members, status, error } = useStore(key, undefined);
  const update = useCallback<PresenceView['update']>(
    (data, options) => client.updatePresence(topicOf(key), data, options),
    [client, key],
  );
  return useMemo(() => ({ members, status, error, update }), [members, status, error, update]);
}

/** The state of the client. */
export function useConnectionState(): StateName {
  const client = usePubSub();
  const listen = useCallback((changed: () => void) => client.on('state', changed), [client]);
  return useSyncExternalStore(
    listen,
    () => client.state,
    () => 'initialized',
  );
}

/** The one topic of a key; of another key, what is no topic. */
function topicOf(key: string): string {
  return key && String(JSON.parse(key));
}

function useStore(key: string, options: TopicOptions | undefined): TopicState {
  const client = usePubSub();
  // Options count at the time when the topics change.
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
