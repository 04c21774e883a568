/** Hears of a network that is back, of a page that is looked at again, and of the end of a sleep. */

import type { Clock } from '../clock.js';

/** Milliseconds between two looks at the clocks (LIFE-5). */
const EVERY = 5_000;

/** Milliseconds that the wall clock has run ahead of the steady one where the machine has slept. */
const SLEPT = 5_000;

/** A timer so late tells it where both clocks go on in sleep; hidden pages are a minute late. */
const LATE = 90_000;

/** What browsers have of windows and documents. */
interface Target {
  addEventListener?(type: string, listener: (event: Happened) => void, options: object): void;
  readonly document?: Target;
  readonly visibilityState?: string;
}

interface Happened {
  readonly type: string;
  readonly persisted?: boolean;
}

/**
 * Watch the platform.
 *
 * @param woke Called with `true` where a connection from before cannot be trusted.
 * @param signal Stops it.
 */
export function watch(clock: Clock, woke: (certain: boolean) => void, signal: AbortSignal): void {
  if (signal.aborted) return;
  const page: Target = globalThis;
  const { document } = page;
  const listen = (target: Target | undefined, type: string, hear: (event: Happened) => void) =>
    target?.addEventListener?.(type, hear, { signal });
  listen(page, 'online', () => woke(true));
  listen(page, 'pageshow', ({ persisted }) => {
    if (persisted) woke(true);
  });
  listen(document, 'visibilitychange', () => {
    if (document?.visibilityState === 'visible') woke(false);
  });
  let wall = clock.wallMs();
  let steady = clock.now();
  const look = (): void => {
    const passed = clock.wallMs() - wall;
    const counted = clock.now() - steady;
    wall += passed;
    steady += counted;
    timer = clock.callLater(EVERY, look, true);
    if (passed - counted > SLEPT || counted - EVERY > LATE) woke(true);
  };
  let timer = clock.callLater(EVERY, look, true);
  signal.addEventListener('abort', () => timer.cancel());
}
