/** One clock object for every timer and both readings of time. */

import { DEVELOPMENT } from './build.js';
import { untilOpened } from './prerendering.js';

/** The maximum delay of `setTimeout`, 24.8 days: it uses 32 bits. */
const LONGEST = 2_147_483_647;

/** A running timer. */
export interface TimerHandle {
  /** Stop it. Has no effect after it has fired. */
  cancel(): void;
}

/** The clock of a client. */
export interface Clock {
  /** Milliseconds that never decrease, from an arbitrary start. */
  now(): number;
  /** Unix milliseconds of the machine. */
  wallMs(): number;
  /**
   * Call a function later.
   *
   * @param after Milliseconds, limited to 24.8 days; a negative number means 0.
   * @param background Whether the timer lets a Node process exit.
   */
  callLater(after: number, callback: () => void, background?: boolean): TimerHandle;
  /** Call a function after all work that is ready now. */
  callSoon(callback: () => void): void;
}

/** The machine's own clock. */
export class SystemClock implements Clock {
  now(): number {
    return performance.now();
  }

  wallMs(): number {
    return Date.now();
  }

  callLater(after: number, callback: () => void, background?: boolean): TimerHandle {
    let timer: unknown;
    const start = (): void => {
      // Node warns about a negative delay; browsers use 0.
      const wait = DEVELOPMENT ? Math.max(after, 0) : after;
      timer ??= setTimeout(callback, Math.min(wait, LONGEST));
      if (DEVELOPMENT && background) (timer as { unref?(): void }).unref?.();
    };
    const opened = untilOpened();
    // A prerendered page does not connect, so its time does not count.
    if (opened) void opened.then(start);
    else start();
    const cancel = (): void => {
      timer ??= 0;
      clearTimeout(timer as number);
    };
    return { cancel };
  }

  callSoon(callback: () => void): void {
    // Pages throttle timers, but not the messages of a channel, which a simulated page may lack.
    if (typeof MessageChannel !== 'function') return void setTimeout(callback);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      callback();
    };
    port2.postMessage(0);
  }
}
