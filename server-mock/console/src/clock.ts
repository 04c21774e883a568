/** The current time as a signal that changes once a second while the page is visible. */

import { everyWhileVisible, Signal } from './reactive.js';

/** Unix ms of this machine. */
export const now: Signal<number> = new Signal(Date.now());

/** Run the clock until the scope ends. */
export function runClock(): void {
  everyWhileVisible(1_000, () => {
    now.value = Date.now();
  });
}
