/**
 * The connection state: a word in the bar, a line while the client is not connected, and the past
 * states.
 */

import { now } from './clock.js';
import { type Connection, explain, STATE_NAMES, tone } from './connection.js';
import { h, replace } from './dom.js';
import { clockTime } from './format.js';
import { effect } from './reactive.js';

/** The button in the bar, and its menu. */
export function status(connection: Connection): readonly [button: HTMLElement, panel: HTMLElement] {
  const button = h(
    'button',
    {
      class: () => `bar-button state ${tone(connection.state.value)}`,
      type: 'button',
      popovertarget: 'connection',
      'aria-label': () => `Connection: ${STATE_NAMES[connection.state.value]}`,
    },
    h('i', { class: 'lamp' }),
    h('span', { class: 'state-name' }, () => STATE_NAMES[connection.state.value]),
  );
  const steps = h('ol', { class: 'steps' });
  effect(() => {
    replace(
      steps,
      ...connection.log.value.map((step) =>
        h(
          'li',
          { class: tone(step.to) },
          h('time', { class: 'number quiet' }, clockTime(step.at)),
          h('i', { class: 'lamp' }),
          h(
            'span',
            {},
            h('b', {}, STATE_NAMES[step.to]),
            step.code !== undefined && h('code', { class: 'code' }, String(step.code)),
            step.reason && h('span', { class: 'quiet' }, step.reason),
          ),
        ),
      ),
    );
  });
  const panel = h(
    'div',
    {
      id: 'connection',
      popover: 'auto',
      class: 'sheet',
      role: 'dialog',
      'aria-label': 'Connection',
      // Opened, it has the focus: it has no control, and follows the whole page.
      tabindex: -1,
      autofocus: true,
    },
    h('h2', {}, 'Connection'),
    h('p', { class: 'quiet' }, () => explain(connection.last.value, now.value) || 'No problems.'),
    h('h3', {}, 'What happened'),
    steps,
  );
  return [button, panel];
}

/** The line below the bar while there is no connection. */
export function statusLine(connection: Connection): HTMLElement {
  return h(
    'section',
    {
      'aria-label': 'Connection state',
      class: () => `status-line ${tone(connection.state.value)}`,
      // Don't show it for the first connection, which also takes a moment.
      hidden: () =>
        connection.state.value === 'connected' ||
        !connection.log.value.some((each) => each.to === 'reconnecting' || each.to === 'suspended'),
    },
    h('b', {}, () => STATE_NAMES[connection.state.value]),
    h('span', { class: 'number' }, () => explain(connection.last.value, now.value)),
  );
}

/** The announcement for assistive technology, once for each state that persists. */
export function announcement(connection: Connection): HTMLElement {
  const box = h('div', { class: 'unseen', role: 'status' });
  let timer: ReturnType<typeof setTimeout> | undefined;
  effect(() => {
    const state = connection.state.value;
    clearTimeout(timer);
    timer = setTimeout(() => {
      box.textContent = STATE_NAMES[state];
    }, 600);
  });
  return box;
}
