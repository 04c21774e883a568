/** The left side: watched patterns and active topics. */

import { TOPICS_MAX, type Topic, type Topics } from './active_topics.js';
import type { Colours } from './colours.js';
import { breakable, h, replace, setAttribute } from './dom.js';
import { ago, plural, rate } from './format.js';
import { icon } from './icons.js';
import type { Feed } from './messages/feed.js';
import { problemOf } from './notices.js';
import type { RateSeries } from './rates.js';
import { effect, Signal } from './reactive.js';
import { Sparkline } from './sparkline.js';
import type { Watches } from './watches.js';

/** Build the panel. */
export function topicPanel(
  watches: Watches,
  topics: Topics,
  feed: Feed,
  colours: Colours,
  narrow: (topic: string | undefined) => void,
  show: () => void,
): HTMLElement {
  const filter = new Signal('');
  const choose = (topic: string | undefined): void => {
    narrow(topic);
    show();
  };
  return h(
    'section',
    { class: 'panel topics', id: 'topics', 'aria-labelledby': 'topics-title', tabindex: -1 },
    h(
      'header',
      { class: 'panel-head' },
      h('h2', { id: 'topics-title' }, 'Topics'),
      h('span', { class: 'quiet number' }, () => {
        const count = topics.list.value.length;
        const isCut = topics.more.value && count >= TOPICS_MAX;
        return count ? `${count}${isCut ? '+' : ''}` : '';
      }),
    ),
    watchForm(watches),
    watchList(watches),
    h(
      'div',
      { class: 'filter' },
      h('input', {
        id: 'filter',
        type: 'search',
        placeholder: 'Filter topics',
        'aria-label': 'Filter topics',
        'aria-keyshortcuts': '/',
        autocomplete: 'off',
        spellcheck: 'false',
        oninput: (event: Event) => {
          filter.value = (event.target as HTMLInputElement).value.trim();
          void topics.search(/^[a-zA-Z0-9._-]*$/.test(filter.peek()) ? filter.peek() : '');
        },
      }),
    ),
    topicList(topics, feed, colours, filter, choose),
  );
}

function watchForm(watches: Watches): HTMLElement {
  const slip = new Signal('');
  const input = h('input', {
    id: 'watch',
    class: 'mono',
    placeholder: 'agent.*.events',
    'aria-label': 'Topic or pattern to watch',
    'aria-describedby': 'watch-slip',
    'aria-invalid': () => (slip.value ? 'true' : undefined),
    'aria-keyshortcuts': 'w',
    autocomplete: 'off',
    autocapitalize: 'off',
    spellcheck: 'false',
    maxlength: 255,
    oninput: () => {
      slip.value = '';
    },
  });
  return h(
    'form',
    {
      class: 'watch-form',
      onsubmit: (event: Event) => {
        event.preventDefault();
        try {
          watches.add(input.value.trim());
          input.value = '';
        } catch (error) {
          const { message, remedy } = problemOf(error);
          slip.value = `${message} ${remedy}`;
        }
      },
    },
    h('div', { class: 'joined' }, input, h('button', { class: 'primary' }, 'Watch')),
    h(
      'p',
      { class: 'hint', id: 'watch-slip', 'aria-live': 'polite' },
      h('span', { class: 'slip', hidden: () => !slip.value }, () => slip.value),
      h(
        'span',
        { hidden: () => slip.value !== '' },
        h('code', {}, '*'),
        ' is one segment, ',
        h('code', {}, '**'),
        ' one or more',
      ),
    ),
  );
}

function watchList(watches: Watches): HTMLElement {
  const list = h('ul', { class: 'chips', 'aria-label': 'Watched patterns' });
  effect(() => {
    replace(
      list,
      ...watches.list.value.map(({ pattern, state, reason }) =>
        h(
          'li',
          { class: `chip ${state}`, title: reason },
          h('span', { class: 'mono clip' }, pattern),
          state !== 'active' &&
            h('span', { class: 'quiet' }, state === 'joining' ? '…' : 'refused'),
          h(
            'button',
            {
              class: 'ghost icon-only',
              type: 'button',
              'aria-label': `Stop watching ${pattern}`,
              onclick: () => watches.remove(pattern),
            },
            icon('close'),
          ),
        ),
      ),
    );
    list.hidden = !watches.list.value.length;
  });
  return list;
}

function topicList(
  topics: Topics,
  feed: Feed,
  colours: Colours,
  filter: Signal<string>,
  choose: (topic: string | undefined) => void,
): HTMLElement {
  const items = new Map<string, TopicItem>();
  const all = new TopicItem('All messages', undefined, () => choose(undefined));
  const list = h('ul', { class: 'topic-list', 'aria-label': 'Topics' });
  const note = h('p', { class: 'hint' });
  effect(() => {
    const known = topics.list.value;
    const wanted = filter.value.toLowerCase();
    const shown = known.filter(({ name }) => name.toLowerCase().includes(wanted));
    const names = new Set(shown.map(({ name }) => name));
    for (const name of items.keys()) if (!names.has(name)) items.delete(name);
    const elements = shown.map((topic) => {
      let item = items.get(topic.name);
      if (!item) {
        item = new TopicItem(topic.name, colours.of(topic.name), () => choose(topic.name));
        items.set(topic.name, item);
      }
      item.show(topic, feed.narrowed.value === topic.name);
      return item.element;
    });
    all.showAll(topics, feed.narrowed.value === undefined);
    const order = [all.element, ...elements];
    // Keep existing elements in place, so that they keep the focus.
    if (
      order.length !== list.children.length ||
      order.some((each, n) => each !== list.children[n])
    ) {
      const focused = document.activeElement;
      list.replaceChildren(...order);
      if (focused instanceof HTMLElement && list.contains(focused)) focused.focus();
    }
    note.textContent = describe(topics, wanted, shown.length, known.length);
    note.hidden = !note.textContent;
  });
  return h('div', { class: 'scroll' }, list, note);
}

function describe(topics: Topics, wanted: string, shown: number, known: number): string {
  if (topics.listed.value === false) {
    return 'Listing all topics requires the token of an administrator. These are the topics of received messages.';
  }
  if (topics.more.value) {
    if (!shown && wanted)
      return `No topic name begins with this text. With more than ${TOPICS_MAX} topics, only the beginning of their names is searched.`;
    if (known >= TOPICS_MAX)
      return `Only the first ${TOPICS_MAX} topics are listed. Type the beginning of a name to find others.`;
    return '';
  }
  if (!shown && known) return 'No topic name contains this text.';
  if (!known) return 'No topics yet. A topic appears with its first message or subscriber.';
  return '';
}

class TopicItem {
  readonly element: HTMLElement;
  private readonly _button: HTMLElement;
  private readonly _rate = h('span', { class: 'rate number' });
  private readonly _more = h('span', { class: 'quiet more' });
  private readonly _line = new Sparkline(72, 16);

  constructor(name: string, tone: number | undefined, choose: () => void) {
    this._button = h(
      'button',
      { type: 'button', class: tone === undefined ? 'all' : `tone-${tone}`, onclick: choose },
      h(
        'span',
        { class: tone === undefined ? 'name' : 'name mono', title: name },
        h('i', { class: 'dot' }),
        h('span', {}, ...breakable(name)),
      ),
      this._line.element,
      this._rate,
      this._more,
    );
    this.element = h('li', {}, this._button);
  }

  show({ info, rates }: Topic, chosen: boolean): void {
    this._draw(rates, chosen);
    const at = info?.last_message_at;
    const parts = info
      ? [`${info.messages} retained`, plural(info.subscribers, 'reader')]
      : ['from received messages'];
    if (at !== undefined && rates.quiet) parts.push(ago(Date.now() - at));
    this._more.textContent = parts.join(' · ');
  }

  showAll(topics: Topics, chosen: boolean): void {
    this._draw(topics.all, chosen);
    const busy = topics.list.peek().filter(({ rates }) => !rates.quiet).length;
    this._more.textContent = `${busy} busy in the last minute`;
  }

  private _draw({ perSecond, recent, quiet }: RateSeries, chosen: boolean): void {
    this._line.draw(perSecond);
    this._rate.textContent = `${rate(recent)}/s`;
    setAttribute(this._button, 'aria-pressed', String(chosen));
    this._button.classList.toggle('quiet-topic', quiet);
  }
}
