/** Light, dark, or the setting of the system; stored in this browser. */

import { recall, remember } from './storage.js';

/** What was chosen. */
export type Theme = 'auto' | 'light' | 'dark';

/** The theme of this browser. */
export function chosenTheme(): Theme {
  const theme = recall('localStorage', 'theme');
  return theme === 'light' || theme === 'dark' ? theme : 'auto';
}

/** Show the page in a theme. */
export function applyTheme(theme: Theme): void {
  const { dataset } = document.documentElement;
  if (theme === 'auto') delete dataset['theme'];
  else dataset['theme'] = theme;
}

/** The next one: what differs from the system first, then back. */
export function nextTheme(theme: Theme): Theme {
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const order: readonly Theme[] = dark ? ['auto', 'light', 'dark'] : ['auto', 'dark', 'light'];
  return order[(order.indexOf(theme) + 1) % order.length] ?? 'auto';
}

/** Choose it. */
export function chooseTheme(theme: Theme): void {
  remember('localStorage', 'theme', theme === 'auto' ? undefined : theme);
  applyTheme(theme);
}
