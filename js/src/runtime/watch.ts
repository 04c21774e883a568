/** Detects a restored network, a page that is visible again, and the end of a suspension. */

import { untilOpened } from '../prerendering.js';
import type { Client } from './environment.js';

/** Milliseconds between two checks of the clocks (LIFE-5). */
const INTERVAL = 5_000;

/**
 * Milliseconds by which the wall clock must be ahead of the steady clock to detect a suspension.
 */
const SUSPENDED = 5_000;

/**
 * Delay of a timer that shows a suspension if both clocks continue; hidden pages are a minute late.
 */
const LATE = 90_000;

/** The used part of a browser's window and document. */
interface Target {
  addEventListener?(type: string, call: (event: PageTransitionEvent) => void, until: object): void;
  readonly document?: Target;
  readonly visibilityState?: string;
}

/**
 * Watch the platform, once the page is open.
 *
 * @param client Receives `woke` until it has ended. An open connection that can be trusted stays open.
 */
export async function watch(client: Client): Promise<void> {
  await untilOpened();
  const { clock, over: signal } = client;
  const { pingInterval, pongTimeout } = client.options;
  if (signal.aborted) return;
  const page: Target = globalThis;
  const { document } = page;
  const woke = (): void => client.perform((session) => session.woke());
  const listen = (
    target: Target | undefined,
    type: string,
    handler: (event: PageTransitionEvent) => void,
  ): void => target?.addEventListener?.(type, handler, { signal });
  let left = Infinity;
  listen(page, 'offline', () => {
    left = clock.now();
    client.perform((session) => session.offline());
  });
  listen(page, 'online', () => {
    // A connection with data since then is not the one that was lost.
    if (client.state !== 'connected' || clock.now() - client.idle < left) woke();
  });
  listen(page, 'pageshow', ({ persisted }) => {
    if (persisted) woke();
  });
  listen(document, 'visibilitychange', () => {
    if (document?.visibilityState !== 'visible') return;
    if (client.state !== 'connected' || client.idle > pingInterval + pongTimeout) woke();
  });
  let wall = clock.wallMs();
  let steady = clock.now();
  const check = (): void => {
    const passed = clock.wallMs() - wall;
    const counted = clock.now() - steady;
    wall += passed;
    steady += counted;
    timer = clock.callLater(INTERVAL, check, true);
    if (passed - counted > SUSPENDED || counted - INTERVAL > LATE) woke();
  };
  let timer = clock.callLater(INTERVAL, check, true);
  signal.addEventListener('abort', () => timer.cancel());
}
