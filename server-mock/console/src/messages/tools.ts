/** Search, filter by type, and export, above the list. */

import { h, replace } from '../dom.js';
import { effect } from '../reactive.js';
import { type ExportFormat, exported, save } from './export.js';
import type { Feed } from './feed.js';
import { typesOf } from './filter.js';

const TYPES_MAX = 100;
const MEDIA = { ndjson: 'application/x-ndjson', json: 'application/json' } as const;

/** Build the toolbar; hidden while there are no messages. */
export function messageTools(feed: Feed): HTMLElement {
  const search = h('input', {
    id: 'search',
    type: 'search',
    placeholder: 'Search topic, type, data',
    'aria-label': 'Search messages',
    'aria-keyshortcuts': 's',
    autocomplete: 'off',
    spellcheck: 'false',
    oninput: () => {
      feed.query.value = search.value;
    },
  });
  effect(() => {
    if (search.value !== feed.query.value) search.value = feed.query.value;
  });
  return h(
    'div',
    {
      class: 'tools',
      hidden: () => !feed.total && !feed.query.value && feed.type.value === undefined,
    },
    search,
    typeMenu(feed),
    exportMenu(feed),
  );
}

/** Shown instead of the list while no message matches. */
export function nothingFound(feed: Feed): HTMLElement {
  return h(
    'div',
    { class: 'empty', hidden: () => feed.size > 0 || !feed.total },
    h(
      'div',
      { class: 'nothing-found' },
      h('p', { class: 'quiet' }, 'No message matches.'),
      h(
        'button',
        {
          class: 'ghost small',
          type: 'button',
          onclick: () => {
            feed.query.value = '';
            feed.type.value = undefined;
          },
        },
        'Show all messages',
      ),
    ),
  );
}

function typeMenu(feed: Feed): HTMLElement {
  const menu = h('select', {
    'aria-label': 'Type of message',
    onchange: () => {
      feed.type.value = menu.value || undefined;
    },
  });
  let shown = '';
  effect(() => {
    void feed.changed.value;
    void feed.narrowed.value;
    const chosen = feed.type.value;
    const types = new Set(typesOf(feed.scope, TYPES_MAX));
    if (chosen !== undefined) types.add(chosen);
    const next = [...types].join('\n');
    if (next !== shown || !menu.options.length) {
      shown = next;
      const options = [...types].map((type) => h('option', { value: type }, type));
      replace(menu, h('option', { value: '' }, 'All types'), ...options);
    }
    menu.value = chosen ?? '';
  });
  return menu;
}

function exportMenu(feed: Feed): HTMLElement {
  const menu: HTMLSelectElement = h(
    'select',
    {
      'aria-label': 'Export what is shown',
      onchange: () => {
        const format = menu.value as ExportFormat | '';
        menu.value = '';
        if (!format) return;
        const name = `${feed.narrowed.peek() ?? 'messages'}.${format}`;
        save(exported(feed.view, format), name, MEDIA[format]);
      },
    },
    h('option', { value: '' }, 'Export'),
    h('option', { value: 'ndjson' }, 'NDJSON'),
    h('option', { value: 'json' }, 'JSON'),
  );
  return menu;
}
