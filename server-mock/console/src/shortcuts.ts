/** Keyboard shortcuts with single keys. `?` lists them, and they can be turned off (WCAG 2.1.4). */

import { h } from './dom.js';
import { listen, Signal } from './reactive.js';
import { recall, remember } from './storage.js';

/** A shortcut. */
export interface Shortcut {
  readonly key: string;
  readonly does: string;
  readonly perform: () => void;
}

const OTHERS = [
  ['↑ ↓', 'in the list: previous or next message (also k and j)'],
  ['Home End', 'in the list: oldest or newest message'],
  ['Enter', 'in the list: open or close a message'],
  ['Ctrl Enter', 'in the publish form: publish'],
  ['Alt ↑ Alt ↓', 'in the publish form: previous or next publish'],
  ['Esc', 'leave a field, or close an open panel'],
] as const;

/** Listen to the shortcuts, and build the dialog that lists them. */
export function shortcuts(all: readonly Shortcut[]): {
  readonly dialog: HTMLDialogElement;
  open(): void;
} {
  const on = new Signal(recall('localStorage', 'single-keys') !== 'off');
  const dialog: HTMLDialogElement = h(
    'dialog',
    { class: 'shortcuts', 'aria-labelledby': 'shortcuts-title', closedby: 'any' },
    h('h2', { id: 'shortcuts-title' }, 'Keyboard'),
    h(
      'dl',
      { class: 'keys-list' },
      ...all.flatMap(({ key, does }) => line(key, does)),
      ...OTHERS.flatMap(([keys, does]) => line(keys, does)),
    ),
    h(
      'label',
      { class: 'check' },
      h('input', {
        type: 'checkbox',
        checked: on.peek(),
        onchange: (event: Event) => {
          on.value = (event.target as HTMLInputElement).checked;
          remember('localStorage', 'single-keys', on.value ? undefined : 'off');
        },
      }),
      'Single keys work outside of fields',
    ),
    h('form', { method: 'dialog', class: 'actions' }, h('button', { class: 'primary' }, 'Close')),
  );
  const open = (): void => {
    if (!dialog.open) dialog.showModal();
  };
  listen(document, 'keydown', (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as Element;
    const field = target.closest('input, textarea, select');
    if (event.key === 'Escape' && field instanceof HTMLElement && !dialog.open) {
      field.blur();
      return;
    }
    if (field || dialog.open || !on.peek()) return;
    if (event.key === '?') open();
    const found = all.find(({ key }) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found.perform();
  });
  return { dialog, open };
}

function line(keys: string, does: string): HTMLElement[] {
  return [h('dt', {}, ...keys.split(' ').map((key) => h('kbd', {}, key))), h('dd', {}, does)];
}
