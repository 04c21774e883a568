/** Synchronizes the address with the page, for links, back and forward. */

import { validateTopic } from '@hanzoai/pubsub';

import type { Feed } from './messages/feed.js';
import { effect, listen, onEnd, type Signal } from './reactive.js';
import { formatRoute, parseRoute, type Route, type View } from './route.js';

/** Show the view of the current address, and follow changes until the scope ends. */
export function navigation(
  view: Signal<View>,
  feed: Feed,
  choose: (topic: string | undefined) => void,
  show: (view: View) => void,
): void {
  const apply = (route: Route): void => {
    choose(route.topic);
    feed.type.value = route.type;
    feed.query.value = route.query;
    show(route.view);
  };
  const go = (): void => {
    const route = parseRoute(location.hash, validateTopic);
    if (route) apply(route);
  };
  go();
  listen(globalThis as unknown as EventTarget, 'popstate', go);
  const title = document.title;
  effect(() => {
    const topic = feed.narrowed.value;
    document.title = topic === undefined ? title : `${topic} · ${title}`;
  });
  onEnd(() => {
    document.title = title;
  });
  let before: string | undefined;
  effect(() => {
    const [topic, type] = [feed.narrowed.value, feed.type.value];
    const address = formatRoute({ view: view.value, topic, type, query: feed.query.value });
    const place = `${view.value} ${topic}`;
    // Text input and the first view of the page add no history entry.
    const isNew = before !== undefined && before !== place;
    before = place;
    if (address === location.hash) return;
    if (isNew) history.pushState(null, '', address);
    else history.replaceState(null, '', address);
  });
}
