/** One clock object for every timer and both readings of time. */

/** The longest delay that `setTimeout` keeps: it counts in 32 bits, and fires at once beyond. */
const LONGEST = 2 ** 31 - 1;

/** A timer that has been started. */
export interface TimerHandle {
  /** Stop it. Harmless when it has fired. */
  cancel(): void;
}

/** Time, as a client lives by it. */
export interface Clock {
  /** Milliseconds that only ever go forward, from an arbitrary start. */
  now(): number;
  /** Unix milliseconds, as the machine believes. */
  wallMs(): number;
  /**
   * Call a function later.
   *
   * @param after Milliseconds, of any length.
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
    const end = this.now() + after;
    let timer: unknown;
    const start = (left: number): void => {
      const step = Math.min(Math.max(left, 0), LONGEST);
      timer = setTimeout(() => (step < LONGEST ? callback() : start(end - this.now())), step);
      if (background) (timer as { unref?: () => void }).unref?.();
    };
    start(after);
    return { cancel: () => clearTimeout(timer as number) };
  }

  callSoon(callback: () => void): void {
    soon(callback);
  }
}

type Soon = (callback: () => void) => void;

/** A turn of the event loop: pages throttle timers, but not the messages of a channel. */
const soon: Soon = (() => {
  const { setImmediate } = globalThis as { setImmediate?: Soon };
  if (typeof setImmediate === 'function') return (callback) => setImmediate(callback);
  if (typeof MessageChannel !== 'function') return (callback) => void setTimeout(callback, 0);
  let channel: MessageChannel | undefined;
  const waiting: (() => void)[] = [];
  return (callback) => {
    if (!channel) {
      channel = new MessageChannel();
      channel.port1.onmessage = () => waiting.shift()?.();
    }
    waiting.push(callback);
    channel.port2.postMessage(null);
  };
})();
