/** Token streams and older messages in Vue: `const { state, cancel } = useStream(ps, topic)`. */

import {
  getCurrentInstance,
  getCurrentScope,
  type MaybeRefOrGetter,
  onMounted,
  onScopeDispose,
  type ShallowRef,
  shallowRef,
  toValue,
  watch,
} from 'vue';

import type { PubSub } from '../client.js';
import {
  type HistoryControls,
  type HistoryState,
  HistoryView,
  type HistoryViewOptions,
  IDLE as NO_HISTORY,
} from '../history/view.js';
import {
  controls,
  IDLE,
  type StreamControls,
  type StreamOptions,
  type StreamState,
  StreamView,
} from '../streams/view.js';

import type { Allowed, AnyPayload, Message, PayloadOf } from '../values.js';

export type { HistoryState, HistoryViewOptions } from '../history/view.js';
export type { StreamOptions, StreamState, StreamStatus } from '../streams/view.js';

/** Result of `useStream`. */
export interface UsedStream extends StreamControls {
  /** The displayed content; it changes at most once per frame. */
  readonly state: Readonly<ShallowRef<StreamState>>;
}

/**
 * Follow a stream until the scope ends, which does not cancel it. If the topic, the `id` or the
 * `sender` changes, following starts again.
 *
 * @param topic A topic without wildcards, or a ref or getter of one. null reads nothing.
 * @param options Options, or a ref or getter of them.
 */
export function useStream<Topics extends object>(
  client: PubSub<Topics>,
  topic: MaybeRefOrGetter<string | null | undefined>,
  options: MaybeRefOrGetter<StreamOptions> = {},
): UsedStream {
  const state = shallowRef(IDLE);
  let view: StreamView | undefined;
  const follow = (): void => {
    const name = toValue(topic);
    view?.leave();
    const show = (shown: StreamState): void => {
      state.value = shown;
    };
    view = name
      ? new StreamView(client as unknown as PubSub, name, toValue(options), show)
      : undefined;
    if (!view) state.value = IDLE;
  };
  const sources = [
    () => toValue(topic),
    () => toValue(options).id,
    () => toValue(options).sender,
  ] as const;
  const begin = (): void => void watch(sources, follow, { immediate: true });
  const scope = getCurrentScope();
  // A server renders components, but never mounts them or ends their scopes.
  if (getCurrentInstance()?.isMounted === false) onMounted(() => scope?.active && scope.run(begin));
  else begin();
  onScopeDispose(() => view?.leave());
  return { state, ...controls(() => view) };
}

/** Result of `useHistory`. */
export interface UsedHistory<Data = AnyPayload> extends HistoryControls {
  /** The messages that have been loaded and that have arrived. */
  readonly state: Readonly<ShallowRef<HistoryState<Data>>>;
}

/**
 * The messages of a topic in order: those that arrive, and before them the older ones that
 * `loadOlder` requests page by page.
 *
 * The end of the scope or another topic cancels a page that is loading, and discards the loaded
 * ones: the next use begins with the messages of `live`.
 *
 * @param topic A topic without wildcards, or a ref or getter of one. null shows nothing.
 * @param live The messages that a subscription to this topic has delivered, oldest first: an array,
 *   or a ref or getter of one. Messages of other topics are not shown.
 * @param options Options, or a ref or getter of them; read when the topic changes.
 */
export function useHistory<
  Topics extends object,
  Topic extends Allowed<Topics>,
  Data = PayloadOf<Topics, Topic>,
>(
  client: PubSub<Topics>,
  topic: MaybeRefOrGetter<Topic | null | undefined>,
  live: MaybeRefOrGetter<readonly Message<Data>[]> = [],
  options: MaybeRefOrGetter<HistoryViewOptions> = {},
): UsedHistory<Data> {
  const state = shallowRef(NO_HISTORY);
  let view: HistoryView | undefined;
  let leave = (): void => {};
  const begin = (name: string | null | undefined): void => {
    leave();
    const made = new HistoryView(client as unknown as PubSub, name, toValue(options));
    view = made;
    leave = made.listen(() => {
      state.value = made.read();
    });
  };
  const keep = (messages: readonly Message[]): void => {
    view?.keep(messages);
    state.value = view?.read() ?? NO_HISTORY;
  };
  const copied = (): readonly Message[] => [...toValue(live)];
  watch(
    () => toValue(topic),
    (name) => {
      begin(name);
      keep(copied());
    },
    { immediate: true },
  );
  watch(copied, keep, { immediate: true });
  onScopeDispose(() => leave());
  return { state, loadOlder: async () => view?.loadOlder() };
}
