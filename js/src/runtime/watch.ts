/** Hears of a network that is back, of a page that is looked at again, and of the end of a sleep. */

import type { Clock } from '../clock.js';
import type { Session } from '../session/session.js';

/** Milliseconds between two looks at the clocks (LIFE-5). */
const EVERY = 5_000;

/** Milliseconds that the wall clock has run ahead of the steady one where the machine has slept. */
const SLEPT = 5_000;

/** A timer so late tells it where both clocks go on in sleep; hidden pages are a minute late. */
const LATE = 90_000;

/** The client that is notified. */
export interface Watched {
  readonly clock: Clock;
  /** Aborted when the client has ended. */
  readonly over: AbortSignal;
  /** Whether the connection is open, and the server was heard recently. */
  readonly standing: boolean;
  /** Whether the connection stands, and was heard since a time of the clock. */
  heardSince(time: number): boolean;
  /** Call into the session, and do what follows. */
  tell(call: (session: Session) => void): void;
}

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
 * @param client Receives `woke` until it has ended. An open connection that can be trusted stays open.
 */
export function watch(client: Watched): void {
  const { clock, over: signal } = client;
  if (signal.aborted) return;
  const page: Target = globalThis;
  const { document } = page;
  const woke = (): void => client.tell((session) => session.woke());
  const listen = (
    target: Target | undefined,
    type: string,
    hear: (event: Happened) => void,
  ): void => target?.addEventListener?.(type, hear, { signal });
  let left = Number.POSITIVE_INFINITY;
  listen(page, 'offline', () => {
    left = clock.now();
    client.tell((session) => session.offline());
  });
  listen(page, 'online', () => {
    // A connection that was heard since is not the one that was gone.
    if (!client.heardSince(left)) woke();
  });
  listen(page, 'pageshow', ({ persisted }) => {
    if (persisted) woke();
  });
  listen(document, 'visibilitychange', () => {
    if (document?.visibilityState === 'visible' && !client.standing) woke();
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
