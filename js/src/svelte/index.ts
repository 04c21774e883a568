/** Token streams in Svelte: `const answer = streamStore(ps, topic)`, then `$answer.text`. */

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

/** A Svelte store: `$store` in a component subscribes to it. */
export interface StreamStore extends StreamControls {
  /**
   * Called with the current state immediately, and with each later one; returns the unsubscribe
   * function.
   */
  subscribe(run: (state: StreamState) => void): () => void;
}

/**
 * A stream as a store: it reads while it has subscribers, and its text grows with the frames of the
 * page. Unsubscribing does not cancel the stream.
 *
 * @param topic A topic without wildcards.
 */
export function streamStore<Topics extends object>(
  client: PubSub<Topics>,
  topic: string,
  options: StreamOptions = {},
): StreamStore {
  const runs = new Set<(state: StreamState) => void>();
  let state = IDLE;
  let view: StreamView | undefined;
  const show = (shown: StreamState): void => {
    state = shown;
    for (const run of runs) run(state);
  };
  return {
    subscribe(run) {
      if (!runs.size) view = new StreamView(client as unknown as PubSub, topic, options, show);
      runs.add(run);
      run(state);
      return () => {
        if (!runs.delete(run) || runs.size) return;
        view?.leave();
        view = undefined;
      };
    },
    ...controls(() => view),
  };
}
