/** The bar that chooses the panel on narrow screens, which show one panel at a time. */

import { h } from './dom.js';
import { type IconName, icon } from './icons.js';
import { Signal } from './reactive.js';
import type { View } from './route.js';

const VIEWS = [
  ['topics', 'Topics', 'topics'],
  ['messages', 'Messages', 'messages'],
  ['publish', 'Publish', 'send'],
  ['people', 'Presence', 'people'],
  ['connections', 'Connections', 'link'],
  ['server', 'Server', 'server'],
] as const satisfies readonly (readonly [View, string, IconName])[];

/** Build the bar. */
export function views(): {
  readonly element: HTMLElement;
  readonly current: Signal<View>;
  show(view: View): void;
} {
  const current = new Signal<View>('messages');
  const show = (view: View): void => {
    current.value = view;
    // Update the class at once, because the element that gets the focus must not be hidden.
    document.querySelector<HTMLElement>('.panels')?.setAttribute('data-view', view);
  };
  const element = h(
    'nav',
    { class: 'views', 'aria-label': 'Panels' },
    ...VIEWS.map(([view, name, sign]) =>
      h(
        'button',
        {
          type: 'button',
          'aria-current': () => (current.value === view ? 'true' : undefined),
          onclick: () => show(view),
        },
        icon(sign),
        name,
      ),
    ),
  );
  return { element, current, show };
}
