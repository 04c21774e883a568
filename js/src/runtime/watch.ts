/** Hears of a network that is back, of a page that is looked at again, and of the end of a sleep. */

import type { Driver } from './driver.js';

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
 * @param driver Is fed `woke`; a connection that stands is left alone, if it can be trusted.
 * @param signal Stops it.
 */
export function watch(driver: Driver, signal: AbortSignal): void {
  if (signal.aborted) return;
  const { clock } = driver;
  const page: Target = globalThis;
  const { document } = page;
  const woke = (): void => driver.feed({ kind: 'woke' });
  const listen = (
    target: Target | undefined,
    type: string,
    hear: (event: Happened) => void,
  ): void => target?.addEventListener?.(type, hear, { signal });
  let left = Number.POSITIVE_INFINITY;
  listen(page, 'offline', () => {
    left = clock.now();
    driver.feed({ kind: 'offline' });
  });
  listen(page, 'online', () => {
    // A connection that was heard since is not the one that was gone.
    if (!driver.heardSince(left)) woke();
  });
  listen(page, 'pageshow', ({ persisted }) => {
    if (persisted) woke();
  });
  listen(document, 'visibilitychange', () => {
    if (document?.visibilityState === 'visible' && !driver.standing) woke();
  });
  let wall = clock.wallMs();
  let steady = clock.now();
  const look = (): void => {
    const passed = clock.wallMs() - wall;
    const counted = clock.now() - steady;
    wall += passed;
    steady += counted;
    timer = clock.callLater(EVERY, look, true);
    if (passed - counted > SLEPT || counted - EVERY > LATE) woke();
  };
  let timer = clock.callLater(EVERY, look, true);
  signal.addEventListener('abort', () => timer.cancel());
}
