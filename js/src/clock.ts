/** One clock object for every timer and both readings of time. */

/** The longest delay that `setTimeout` keeps, 24.8 days: it counts in 32 bits. */
const LONGEST = 2 ** 31 - 1;

/** A timer that has been started. */
export interface TimerHandle {
  /** Stop it. Harmless when it has fired. */
  cancel(): void;
}

/** The clock of a client. */
export interface Clock {
  /** Milliseconds that only ever go forward, from an arbitrary start. */
  now(): number;
  /** Unix milliseconds, as the machine believes. */
  wallMs(): number;
  /**
   * Call a function later.
   *
   * @param after Milliseconds; beyond 24.8 days it is called after these.
   * @param background Whether the timer alone should not keep a Node process alive.
   */
  callLater(after: number, callback: () => void, background?: boolean): TimerHandle;
  /** Call a function after everything that is ready to run now. */
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

  callLater(after: number, callback: () => void, background = false): TimerHandle {
    const timer: unknown = setTimeout(callback, Math.min(after, LONGEST));
    if (background) (timer as { unref?(): void }).unref?.();
    return { cancel: () => clearTimeout(timer as number) };
  }

  callSoon(callback: () => void): void {
    // Pages throttle timers, but not the messages of a channel.
    if (typeof MessageChannel !== 'function') return void setTimeout(callback);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      callback();
    };
    port2.postMessage(0);
  }
}
