/** Token streams and older messages in Svelte: `const answer = streamStore(ps, topic)`, then `$answer.text`. */

import type { PubSub } from '../client.js';
import {
  type HistoryControls,
  type HistoryState,
  HistoryView,
  type HistoryViewOptions,
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

/** A Svelte store of a topic with its older messages. */
export interface HistoryStore<Data = AnyPayload> extends HistoryControls {
  /** Called with the current state immediately, and with each later one; returns the unsubscribe function. */
  subscribe(run: (state: HistoryState<Data>) => void): () => void;
}

/** A store whose value is the messages that a subscription has delivered, oldest first. */
export interface LiveMessages<Data = AnyPayload> {
  /** Calls a function with the current value, and with each later one. */
  subscribe(run: (messages: readonly Message<Data>[]) => void): () => void;
}

/**
 * The messages of a topic in order, as a store: those that arrive, and before them the older ones
 * that `loadOlder` requests page by page.
 *
 * The last unsubscribe cancels a page that is loading. The store keeps the loaded ones: the next
 * subscriber begins with them, if messages that have arrived meanwhile join them.
 *
 * @param topic A topic without wildcards.
 * @param live A store of the messages that a subscription to this topic has delivered, oldest
 *   first. Messages of other topics are not shown.
 * @param options Messages per page, and the limit; read once.
 */
export function historyStore<
  Topics extends object,
  Topic extends Allowed<Topics>,
  Data = PayloadOf<Topics, Topic>,
>(
  client: PubSub<Topics>,
  topic: Topic,
  live?: LiveMessages<Data>,
  options: HistoryViewOptions = {},
): HistoryStore<Data> {
  const view = new HistoryView(client as unknown as PubSub, topic, options);
  const runs = new Set<(state: HistoryState<Data>) => void>();
  const show = (): void => {
    for (const run of runs) run(view.read());
  };
  let leave = (): void => {};
  return {
    subscribe(run) {
      if (!runs.size) {
        const ends = [view.listen(show)];
        const keep = (messages: readonly Message[]): void => {
          view.keep(messages);
          show();
        };
        if (live) ends.push(live.subscribe(keep));
        leave = () => {
          for (const end of ends) end();
        };
      }
      runs.add(run);
      run(view.read());
      return () => {
        if (runs.delete(run) && !runs.size) leave();
      };
    },
    loadOlder: view.loadOlder,
  };
}
