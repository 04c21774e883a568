/** The line that shows what the demonstration does, and the button that plays it. */

import type { Demonstration } from './demonstration.js';
import { h } from './dom.js';

/** Below the bar while it is played. */
export function captionLine(demonstration: Demonstration): HTMLElement {
  const { caption, running } = demonstration;
  return h(
    'div',
    { class: 'caption-line', hidden: () => !running.value },
    h('span', { role: 'status' }, () => caption.value),
    h(
      'button',
      { class: 'ghost small', type: 'button', onclick: () => demonstration.stop() },
      'Stop the demonstration',
    ),
  );
}

/** Plays it. */
export function demonstrationButton(demonstration: Demonstration, look: string): HTMLElement {
  const { running } = demonstration;
  return h(
    'button',
    {
      class: look,
      type: 'button',
      disabled: () => running.value,
      onclick: () => demonstration.start(),
    },
    () => (running.value ? 'Demonstration runs…' : 'Play a demonstration'),
  );
}
