/** Token streams in Vue: `const { state, cancel } = useStream(ps, topic)`. */

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
  controls,
  IDLE,
  type StreamControls,
  type StreamOptions,
  type StreamState,
  StreamView,
} from '../streams/view.js';

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
