/** The centre of the page: the list of messages and its toolbar. */

import type { PubSub } from '@hanzoai/pubsub';

import type { Topics } from '../active_topics.js';
import { breakable, h, replace } from '../dom.js';
import { compact, plural, rate } from '../format.js';
import type { History } from '../history.js';
import { icon } from '../icons.js';
import { effect, Signal } from '../reactive.js';
import { formatRoute } from '../route.js';
import { answer } from './answer.js';
import type { Feed } from './feed.js';
import { type ListOptions, MessageList } from './list.js';
import { timeline } from './timeline.js';
import { messageTools, nothingFound } from './tools.js';

/** The parts of the page that the panel uses. */
export interface MessagePanel {
  readonly element: HTMLElement;
  readonly list: MessageList;
}

/** Build the panel. */
export function messagePanel(
  ps: PubSub,
  feed: Feed,
  topics: Topics,
  history: History,
  options: Pick<ListOptions, 'toneOf' | 'again'>,
  empty: HTMLElement,
  ahead: () => number,
): MessagePanel {
  const head = historyHead(feed, history);
  const list = new MessageList({
    ...options,
    feed,
    head,
    atTop: () => {
      if (history.state.peek() === 'more') void history.older();
    },
  });
  const missed = new Signal(0);
  let seen = 0;
  effect(() => {
    void feed.changed.value;
    if (list.following.value) seen = feed.view.at(-1)?.key ?? 0;
    missed.value = feed.newerThan(seen);
  });
  const title = h('h2', { id: 'messages-title' });
  effect(() => {
    const topic = feed.narrowed.value;
    const all = topic === undefined;
    replace(
      title,
      all
        ? 'All messages'
        : h(
            'span',
            { class: `tone-${options.toneOf(topic)}` },
            h('i', { class: 'dot' }),
            h('span', { class: 'mono' }, ...breakable(topic)),
          ),
    );
  });
  const speed = h('span', { class: 'quiet number' }, () => {
    void topics.list.value;
    const topic = feed.narrowed.value;
    const found =
      topic === undefined
        ? topics.all
        : topics.list.peek().find((each) => each.name === topic)?.rates;
    return `${rate(found?.recent ?? 0)}/s`;
  });
  const element = h(
    'section',
    { class: 'panel messages', id: 'messages', 'aria-labelledby': 'messages-title', tabindex: -1 },
    h(
      'header',
      { class: 'panel-head' },
      title,
      h(
        'button',
        {
          class: 'ghost small',
          type: 'button',
          hidden: () => feed.narrowed.value === undefined,
          onclick: () => feed.narrow(undefined),
        },
        'Show all',
      ),
      speed,
      readers(topics, feed),
      h('span', { class: 'push' }),
      pauseButton(feed),
      h('button', { class: 'ghost small', type: 'button', onclick: () => feed.clear() }, 'Clear'),
    ),
    messageTools(feed),
    timeline(feed, ahead, (key) => list.show(key)),
    answer(ps, feed),
    h(
      'div',
      { class: 'list-box' },
      list.element,
      h('div', { class: 'empty', hidden: () => feed.total > 0 }, empty),
      nothingFound(feed),
    ),
    h(
      'button',
      {
        class: 'jump',
        type: 'button',
        hidden: () => list.following.value || !feed.size,
        onclick: () => list.toEnd(),
      },
      icon('down'),
      () => (missed.value ? `${compact(missed.value)} new` : 'Latest'),
    ),
  );
  return { element, list };
}

/** The number of connections that read the topic, as a link to them. */
function readers(topics: Topics, feed: Feed): HTMLElement {
  const link = h('a', { class: 'readers' });
  effect(() => {
    const topic = feed.narrowed.value;
    const found = topics.list.value.find(({ name }) => name === topic)?.info?.subscribers;
    link.hidden = topic === undefined || found === undefined;
    if (topic === undefined || found === undefined) return;
    link.href = formatRoute({ view: 'connections', topic, type: undefined, query: '' });
    link.textContent = plural(found, 'reader');
  });
  return link;
}

function pauseButton(feed: Feed): HTMLElement {
  const button = h('button', {
    class: 'ghost small',
    type: 'button',
    'aria-pressed': () => String(feed.paused.value),
    onclick: () => feed.pause(!feed.paused.peek()),
  });
  effect(() => {
    const on = feed.paused.value;
    const waiting = feed.waiting.value;
    replace(
      button,
      icon(on ? 'play' : 'pause'),
      on ? (waiting ? `Resume, ${compact(waiting)} waiting` : 'Resume') : 'Pause',
    );
  });
  return button;
}

function historyHead(feed: Feed, history: History): HTMLElement {
  const labels = {
    more: 'Load older messages',
    loading: 'Loading…',
    beginning: 'Nothing older is retained',
    full: 'This page cannot hold more messages',
    failed: 'Loading failed. Try again',
  } as const;
  return h(
    'div',
    {
      class: 'history-head',
      hidden: () => feed.narrowed.value === undefined || !feed.size,
    },
    h(
      'button',
      {
        class: 'ghost small',
        type: 'button',
        'aria-disabled': () => String(!['more', 'failed'].includes(history.state.value)),
        onclick: () => void history.older(),
      },
      () => labels[history.state.value],
    ),
    h('span', { class: 'quiet number' }, () => `${plural(feed.size, 'message')} here`),
  );
}
