/** `useStream`: an answer while it grows, rendered once per frame. */

import { useMemo, useRef, useSyncExternalStore } from 'react';

import { UsageError } from '../errors.js';
import { IDLE, type StreamOptions, type StreamState, StreamView as View } from '../streams/view.js';
import { usePubSub } from './provider.js';

export type { StreamOptions, StreamStatus } from '../streams/view.js';

/** Result of `useStream`. */
export interface StreamView extends StreamState {
  /** Ask the writer to end the stream; see `StreamReader.cancel`. */
  readonly cancel: (reason?: string) => Promise<void>;
  /** Send data to the writer; see `StreamReader.steer`. */
  readonly steer: (data: unknown) => Promise<void>;
}

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
    return {
      listen,
      read: () => state,
      cancel: async (reason?: string) => known(view).cancel(reason),
      steer: async (data: unknown) => known(view).steer(data),
    };
  }, [client, topic, id, sender, isOwn]);
  const state = useSyncExternalStore(listen, read, () => IDLE);
  return useMemo(() => ({ ...state, cancel, steer }), [state, cancel, steer]);
}

function known(view: View | undefined): View {
  if (view) return view;
  throw new UsageError('There is no stream to cancel or steer yet.', {
    remedy: 'Wait for the status `streaming`.',
  });
}
