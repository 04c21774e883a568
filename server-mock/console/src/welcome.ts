/** The content of the empty list: how to publish a first message. */

import type { Config } from './config.js';
import { copyButton } from './copy.js';
import type { Demonstration } from './demonstration.js';
import { demonstrationButton } from './demonstration_controls.js';
import { h } from './dom.js';
import { effect, Signal } from './reactive.js';
import { snippets } from './snippets.js';
import type { Watches } from './watches.js';

/** Build it. */
export function welcome(
  config: Config,
  connected: () => boolean,
  watches: Watches,
  demo: Demonstration,
  publish: () => void,
): HTMLElement {
  return h(
    'div',
    { class: 'welcome' },
    h('h3', {}, () => {
      if (!watches.list.value.length) return 'You are not watching any topic.';
      return connected() ? 'Listening. No message yet.' : 'No message yet.';
    }),
    h('p', { class: 'quiet' }, () => {
      const [first, ...more] = watches.list.value.map(({ pattern }) => pattern);
      if (first === undefined) return 'Watch a topic or a pattern, or publish a first message:';
      return `Messages of ${first}${more.length ? ` and ${more.length} more` : ''} appear here as they are published.`;
    }),
    h(
      'p',
      { class: 'actions' },
      h('button', { class: 'primary', type: 'button', onclick: publish }, 'Publish one here'),
      demonstrationButton(demo, 'ghost'),
    ),
    tabs(config),
  );
}

function tabs(config: Config): HTMLElement {
  const all = snippets(config);
  const chosen = new Signal(0);
  const names = all.map(({ name }, n) =>
    h(
      'button',
      {
        role: 'tab',
        type: 'button',
        id: `snippet-tab-${n}`,
        'aria-controls': 'snippet',
        'aria-selected': () => String(chosen.value === n),
        tabindex: () => (chosen.value === n ? 0 : -1),
        onclick: () => {
          chosen.value = n;
        },
      },
      name,
    ),
  );
  const code = h('code', {}, () => all[chosen.value]?.code ?? '');
  const panel = h('pre', { id: 'snippet', role: 'tabpanel', tabindex: 0 }, code);
  effect(() => panel.setAttribute('aria-labelledby', `snippet-tab-${chosen.value}`));
  return h(
    'div',
    { class: 'snippets' },
    h(
      'div',
      { class: 'snippet-head' },
      h(
        'div',
        {
          role: 'tablist',
          'aria-label': 'Publish a first message from',
          onkeydown: (event: KeyboardEvent) => {
            const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
            if (step === undefined) return;
            event.preventDefault();
            chosen.value = (chosen.peek() + step + all.length) % all.length;
            names[chosen.peek()]?.focus();
          },
        },
        ...names,
      ),
      copyButton('Copy', () => all[chosen.peek()]?.code ?? ''),
    ),
    panel,
  );
}
