/** `useHistory`: the messages of a topic, with older ones page by page. */

import { useEffect, useMemo, useSyncExternalStore } from 'react';

import {
  type HistoryControls,
  type HistoryState,
  type HistoryViewOptions,
  IDLE,
  HistoryView as View,
} from '../history/view.js';
import type { AnyPayload, Message } from '../values.js';
import { usePubSub } from './provider.js';

export type { HistoryViewOptions } from '../history/view.js';

/** Result of `useHistory`. */
export interface HistoryView<Data = AnyPayload> extends HistoryState<Data>, HistoryControls {}

const NONE: readonly Message[] = [];

/**
 * The messages of a topic in order: those of `useTopic`, and before them the older ones that
 * `loadOlder` requests page by page.
 *
 * A component that unmounts cancels a page that is loading, and discards the loaded ones, as does
 * another topic: the next use begins with the messages of `live`.
 *
 * @param topic A topic without wildcards; null shows nothing.
 * @param live `messages` of `useTopic` with the same topic. Messages of other topics are not shown.
 * @param options Messages per page, and the limit; read when the topic changes.
 */
export function useHistory<Data = AnyPayload>(
  topic: string | null | undefined,
  live: readonly Message<Data>[] = NONE,
  options: HistoryViewOptions = {},
): HistoryView<Data> {
  const client = usePubSub();
  const view = useMemo(() => new View(client, topic, options), [client, topic]);
  const state = useSyncExternalStore(view.listen, view.read, () => IDLE);
  const shown = useMemo(() => view.extended(live, state), [view, live, state]);
  // Later lists may no longer have these messages.
  useEffect(() => view.keep(live), [view, live]);
  return useMemo(() => ({ ...shown, loadOlder: view.loadOlder }), [shown, view]);
}
