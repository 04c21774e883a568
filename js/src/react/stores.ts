/** The topics that the components of a client show, each with one store. */

import type { PubSub } from '../client.js';
import { createStore, type Pace, type TopicStore } from './topic_store.js';

/** Milliseconds after which changes are shown if no frame is drawn, as in hidden pages. */
const HIDDEN = 100;

/** The page's function, otherwise a timer. */
export const page: Pace = {
  frame(draw) {
    globalThis.requestAnimationFrame?.(draw);
    setTimeout(draw, HIDDEN);
  },
  later(milliseconds, callback) {
    const timer = setTimeout(callback, milliseconds);
    return () => clearTimeout(timer);
  },
};

const stores = new WeakMap<PubSub, Map<string, TopicStore>>();

/** The name of a set of topics; empty for none. */
export function keyOf(topics: string | readonly string[] | null | undefined): string {
  return topics?.length ? JSON.stringify([topics].flat()) : '';
}

/** The view of a set of topics; undefined if no component uses it. */
export function findStore(client: PubSub, key: string): TopicStore | undefined {
  return stores.get(client)?.get(key);
}

/** The store of a set of topics, created if necessary. */
export function openStore(client: PubSub, key: string): TopicStore {
  const all = stores.get(client) ?? new Map<string, TopicStore>();
  stores.set(client, all);
  const store = all.get(key) ?? createStore(client, JSON.parse(key), page, () => all.delete(key));
  all.set(key, store);
  return store;
}
