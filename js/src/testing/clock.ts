/** A clock that a test moves. */

import type { Clock, TimerHandle } from '../clock.js';
import { checkNumber } from '../settings/checks.js';

const START_MS = 1_740_307_200_000;

/** Maximum number of timers that may fire at the same instant. */
const AT_ONCE = 1_000_000;

/** Turns of the event loop after which all work that needs no time has run. */
const TURNS = 20;

/** Maximum milliseconds that a test may advance at once: ten years. */
const LONGEST = 10 * 365 * 86_400_000;

// Keep the timers of the platform, because test runners replace the globals.
const {
  setImmediate: immediately,
  MessageChannel: Channel,
  setTimeout: later,
} = globalThis as {
  readonly setImmediate?: (callback: () => void) => unknown;
  readonly MessageChannel?: typeof MessageChannel;
  readonly setTimeout: (callback: () => void) => unknown;
};

/** Call a function in a later turn of the event loop. */
function inTurn(callback: () => void): void {
  if (immediately) {
    immediately(callback);
  } else if (Channel) {
    const { port1, port2 } = new Channel();
    port1.onmessage = () => {
      port1.close();
      callback();
    };
    port2.postMessage(0);
  } else {
    later(callback);
  }
}

interface Timer extends TimerHandle {
  readonly due: number;
  readonly fire: () => void;
}

/**
 * A clock that only the test moves, so that no test waits and every run is the same.
 *
 * Pass it to `MemoryServer`; the server and its clients then use it.
 */
export class VirtualClock implements Clock {
  private _now = 0;
  private _wall: number;
  private readonly _timers = new Set<Timer>();

  /** @param start Initial wall time, in Unix milliseconds; default 1,740,307,200,000. */
  constructor(start: number = START_MS) {
    this._wall = start;
  }

  /** Milliseconds by which the test has advanced the clock. */
  now(): number {
    return this._now;
  }

  /** Unix milliseconds. */
  wallMs(): number {
    return Math.round(this._wall);
  }

  /** Call `callback` when the test has advanced the clock by this many milliseconds. */
  callLater(after: number, callback: () => void): TimerHandle {
    const cancel = (): void => void this._timers.delete(timer);
    const fire = (): void => {
      cancel();
      callback();
    };
    const timer: Timer = { due: this._now + Math.max(0, after), fire, cancel };
    this._timers.add(timer);
    return timer;
  }

  /** Call `callback` after all work that is ready now. */
  callSoon(callback: () => void): void {
    inTurn(callback);
  }

  /** Wait until the test has advanced the clock by this many milliseconds. */
  sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      this.callLater(milliseconds, resolve);
    });
  }

  /** Number of timers that can still fire: 0 after everything is closed. */
  get pending(): number {
    return this._timers.size;
  }

  /**
   * Run everything that is ready and every timer that is due, until all tasks wait for time or for
   * external events.
   *
   * Files, sockets and timers of the platform are external: this does not wait for them.
   */
  async settle(): Promise<void> {
    await this.advance(0);
  }

  /**
   * Advance the clock: timers fire in the order of their times, and other work runs in between.
   *
   * @param milliseconds 0 or more.
   */
  async advance(milliseconds: number): Promise<void> {
    checkNumber('milliseconds', milliseconds, [0, LONGEST, 'milliseconds']);
    const end = this._now + milliseconds;
    await idle();
    let due = this._next();
    for (let fired = 0; due && due.due <= end; due = this._next()) {
      if (due.due > this._now) fired = 0;
      this._move(Math.max(due.due, this._now));
      for (; due && due.due <= this._now; due = this._next()) {
        due.fire();
        fired += 1;
        if (fired > AT_ONCE) throw new Error('Timers start each other without any time passing.');
      }
      await idle();
    }
    this._move(end);
    await idle();
  }

  /**
   * Advance the clock until a condition holds.
   *
   * @param happened The condition; it is evaluated after each timer.
   * @param limit Maximum milliseconds to advance; default an hour.
   * @returns Milliseconds by which the clock advanced.
   * @throws Error The condition did not hold within the limit.
   */
  async advanceUntil(happened: () => unknown, limit = 3_600_000): Promise<number> {
    const began = this._now;
    await this.settle();
    while (!happened()) {
      const due = this._next()?.due;
      if (due === undefined || due > began + limit) {
        throw new Error(`The condition was not met within ${limit} virtual milliseconds.`);
      }
      await this.advance(due - this._now);
    }
    return this._now - began;
  }

  /** Simulate a suspended machine: only the wall clock advances. */
  async machineSleeps(milliseconds: number): Promise<void> {
    await this.settle();
    this._wall += milliseconds;
  }

  private _next(): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this._timers) if (!next || timer.due < next.due) next = timer;
    return next;
  }

  private _move(to: number): void {
    this._wall += to - this._now;
    this._now = to;
  }
}

/** Yield until no work is left. */
async function idle(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise<void>(inTurn);
}
