/** The button that switches between light, dark, and the setting of the system. */

import { h, replace } from './dom.js';
import { icon } from './icons.js';
import { effect, Signal } from './reactive.js';
import { chooseTheme, chosenTheme, nextTheme } from './theme.js';

const theme = new Signal(chosenTheme());
const ICONS = { auto: 'auto', light: 'sun', dark: 'moon' } as const;
const NAMES = { auto: 'as the system', light: 'light', dark: 'dark' } as const;

/** Switch to the next theme. */
export function changeTheme(): void {
  theme.value = nextTheme(theme.peek());
  chooseTheme(theme.value);
}

/** Build the button. */
export function themeButton(): HTMLElement {
  const button = h('button', {
    class: 'ghost icon-only',
    type: 'button',
    'aria-label': () => `Theme: ${NAMES[theme.value]}`,
    title: () => `Theme: ${NAMES[theme.value]}`,
    onclick: changeTheme,
  });
  effect(() => replace(button, icon(ICONS[theme.value])));
  return button;
}
