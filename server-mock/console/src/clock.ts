/** The time as the page shows it: a signal that moves once a second while anybody can see it. */

import { everyWhileVisible, Signal } from './reactive.js';

/** Unix ms of this machine. */
export const now: Signal<number> = new Signal(Date.now());

/** Let it run until the scope ends. */
export function runClock(): void {
  everyWhileVisible(1_000, () => {
    now.value = Date.now();
  });
}
