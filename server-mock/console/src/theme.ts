/** Light, dark, or the setting of the system; stored in this browser. */

import { recall, remember } from './storage.js';

/** The chosen theme. */
export type Theme = 'auto' | 'light' | 'dark';

/** The theme of this browser. */
export function chosenTheme(): Theme {
  const theme = recall('localStorage', 'theme');
  return theme === 'light' || theme === 'dark' ? theme : 'auto';
}

/** Apply a theme to the page. */
export function applyTheme(theme: Theme): void {
  const { dataset } = document.documentElement;
  if (theme === 'auto') delete dataset['theme'];
  else dataset['theme'] = theme;
}

/** The next theme: first the opposite of the system's, then back to the system's. */
export function nextTheme(theme: Theme): Theme {
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const order: readonly Theme[] = dark ? ['auto', 'light', 'dark'] : ['auto', 'dark', 'light'];
  return order[(order.indexOf(theme) + 1) % order.length] ?? 'auto';
}

/** Choose a theme. */
export function chooseTheme(theme: Theme): void {
  remember('localStorage', 'theme', theme === 'auto' ? undefined : theme);
  applyTheme(theme);
}
