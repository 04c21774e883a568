/** `useStream`: an answer while it grows, rendered once per frame. */

import { useCallback, useEffect, useMemo, useRef, useState } from 'react';

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
  const [state, setState] = useState(IDLE);
  const view = useRef<View | undefined>(undefined);
  const asked = useRef(onCancel);
  asked.current = onCancel;
  const isOwn = Boolean(onCancel);
  useEffect(() => {
    if (!topic) {
      setState(IDLE);
      return undefined;
    }
    const own = isOwn
      ? { onCancel: (stream: string, reason: string) => asked.current?.(stream, reason) }
      : {};
    const made = new View(client, topic, { id, sender, ...own }, setState);
    view.current = made;
    return () => {
      made.leave();
      view.current = undefined;
    };
  }, [client, topic, id, sender, isOwn]);
  const cancel = useCallback(async (reason?: string) => known(view.current).cancel(reason), []);
  const steer = useCallback(async (data: unknown) => known(view.current).steer(data), []);
  return useMemo(() => ({ ...state, cancel, steer }), [state, cancel, steer]);
}

function known(view: View | undefined): View {
  if (view) return view;
  throw new UsageError('There is no stream to cancel or steer yet.', {
    remedy: 'Wait for the status `streaming`.',
  });
}
