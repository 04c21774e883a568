/** The line that describes the step of the demonstration, and the button that starts it. */

import type { Demonstration } from './demonstration.js';
import { h } from './dom.js';

/** The line below the bar, shown while the demonstration is running. */
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

/** The button that starts it. */
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
    () => (running.value ? 'Demonstration running…' : 'Play a demonstration'),
  );
}
