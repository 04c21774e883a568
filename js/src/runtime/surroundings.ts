/** What a client stands on: how it reaches a server, what the platform tells of sleep and network. */

import { type Clock, SystemClock } from '../clock.js';
import { ConnectionFailed } from '../errors.js';
import type { TransportName } from '../session/effects.js';
import type { ClientOptions } from '../settings/options.js';
import type { Transport } from '../transports/transport.js';
import { WebSocketTransport } from '../transports/websocket.js';

/** Milliseconds between two looks at the clocks (LIFE-5). */
const WATCH_EVERY = 5_000;

/** Milliseconds that the wall clock has run ahead of the steady one where the machine has slept. */
const SLEPT = 5_000;

/** A timer so late tells it where both clocks go on in sleep; hidden pages are a minute late. */
const LATE = 90_000;

/** Time, randomness and transports. */
export interface Surroundings {
  readonly clock: Clock;
  /** A number from 0 inclusive to 1 exclusive. */
  random(): number;
  /** Make a transport that is not open yet. */
  dial(name: TransportName, options: ClientOptions): Transport | Promise<Transport>;
}

/** Those of the platform; the event stream is loaded when it is first needed. */
export const platform: Surroundings = {
  clock: new SystemClock(),
  random: Math.random,
  dial(name, options) {
    const { clock, random } = platform;
    if (name === 'websocket') return new WebSocketTransport(options, clock);
    return import('../transports/sse.js').then(
      (sse) => new sse.SseTransport(options, clock, random),
    );
  },
};

/** A part of the client that is loaded when it is first needed. */
export function load<Part>(part: Promise<Part>): Promise<Part> {
  return part.catch((cause) => {
    throw new ConnectionFailed('A part of the client did not load.', { cause });
  });
}

/** What browsers have of windows and documents. */
interface Target {
  addEventListener?(type: string, listener: (event: Event) => void, options: object): void;
  readonly document?: Target;
  readonly visibilityState?: string;
}

type Event = { readonly type: string; readonly persisted?: boolean };

/**
 * Hear of a network that is back, of a page that is looked at again, and of the end of a sleep.
 *
 * @param woke Called then; `true` where a connection from before cannot be trusted.
 * @returns Stops it.
 */
export function watch(clock: Clock, woke: (certain: boolean) => void): () => void {
  const page: Target = globalThis;
  const listening = new AbortController();
  const hear = ({ type, persisted }: Event): void => {
    if (type === 'online' || persisted) woke(true);
    else if (page.document?.visibilityState === 'visible') woke(false);
  };
  for (const type of ['online', 'pageshow', 'visibilitychange']) {
    const target = type === 'visibilitychange' ? page.document : page;
    target?.addEventListener?.(type, hear, { signal: listening.signal });
  }
  let [wall, steady] = [clock.wallMs(), clock.now()];
  const look = (): void => {
    const [passed, counted] = [clock.wallMs() - wall, clock.now() - steady];
    [wall, steady] = [wall + passed, steady + counted];
    timer = clock.callLater(WATCH_EVERY, look, true);
    if (passed - counted > SLEPT || counted - WATCH_EVERY > LATE) woke(true);
  };
  let timer = clock.callLater(WATCH_EVERY, look, true);
  return () => {
    listening.abort();
    timer.cancel();
  };
}
