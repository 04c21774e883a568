/** `useStream`: an answer while it grows, rendered once per frame. */

import { useMemo, useRef, useSyncExternalStore } from 'react';

import {
  controls,
  IDLE,
  type StreamControls,
  type StreamOptions,
  type StreamState,
  StreamView as View,
} from '../streams/view.js';
import { usePubSub } from './provider.js';

export type { StreamOptions, StreamStatus } from '../streams/view.js';

/** Result of `useStream`. */
export interface StreamView extends StreamState, StreamControls {}

/**
 * Follow a stream: its text grows with the frames of the page, and every delta is applied.
 *
 * A component that unmounts does not cancel the stream. Another `id` or `sender` replaces it.
 *
 * @param topic A topic without wildcards; null reads nothing.
 */
export function useStream(
  topic: string | null | undefined,
  { id, sender, onCancel }: StreamOptions = {},
): StreamView {
  const client = usePubSub();
  const asked = useRef(onCancel);
  asked.current = onCancel;
  const isOwn = Boolean(onCancel);
  // One state for each stream: nothing of the previous one is shown for another topic.
  const { listen, read, cancel, steer } = useMemo(() => {
    let state = IDLE;
    let view: View | undefined;
    const own = isOwn
      ? { onCancel: (stream: string, reason: string) => asked.current?.(stream, reason) }
      : {};
    const listen = (changed: () => void): (() => void) => {
      if (!topic) return () => {};
      const made = new View(client, topic, { id, sender, ...own }, (shown) => {
        state = shown;
        changed();
      });
      view = made;
      return () => {
        made.leave();
        view = undefined;
      };
    };
    return { listen, read: () => state, ...controls(() => view) };
  }, [client, topic, id, sender, isOwn]);
  const state = useSyncExternalStore(listen, read, () => IDLE);
  return useMemo(() => ({ ...state, cancel, steer }), [state, cancel, steer]);
}
