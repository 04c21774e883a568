/** A clock that a test moves. */

import type { Clock, TimerHandle } from '../clock.js';
import { checkNumber } from '../settings/checks.js';

const START_MS = 1_740_307_200_000;

/** Timers that may fire in one moment. */
const AT_ONCE = 1_000_000;

/** Turns of the event loop after which everything that needs no time has run. */
const TURNS = 20;

/** Milliseconds that a test may pass at once: ten years. */
const LONGEST = 10 * 365 * 86_400_000;

// Those of the platform: test runners put others in their places.
const {
  setImmediate: immediately,
  MessageChannel: Channel,
  setTimeout: later,
} = globalThis as {
  readonly setImmediate?: (callback: () => void) => unknown;
  readonly MessageChannel?: typeof MessageChannel;
  readonly setTimeout: (callback: () => void) => unknown;
};

/** Call a function in another turn of the event loop. */
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
 * Time that only a test moves, so that no test waits and every run is the same.
 *
 * Pass it to `MemoryServer`, which uses it, as its clients do.
 */
export class VirtualClock implements Clock {
  private _now = 0;
  private _wall: number;
  private readonly _timers = new Set<Timer>();

  /** @param start What the wall clock says at first, Unix milliseconds. */
  constructor(start: number = START_MS) {
    this._wall = start;
  }

  /** Milliseconds that the test has let pass. */
  now(): number {
    return this._now;
  }

  /** Unix milliseconds. */
  wallMs(): number {
    return Math.round(this._wall);
  }

  /** Call `callback` when the test has moved the clock by so many milliseconds. */
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

  /** Call `callback` after everything that is ready to run now. */
  callSoon(callback: () => void): void {
    inTurn(callback);
  }

  /** Wait until the test has moved the clock by so many milliseconds. */
  sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      this.callLater(milliseconds, resolve);
    });
  }

  /** How many timers could still fire: 0 once everything is closed. */
  get pending(): number {
    return this._timers.size;
  }

  /**
   * Let everything run, and every timer that is due, until all waits for time or the outside.
   *
   * Files, sockets and timers of the platform are the outside: they are not waited for.
   */
  async settle(): Promise<void> {
    await this.advance(0);
  }

  /**
   * Let time pass: timers fire in the order of their times, everything else runs in between.
   *
   * @param milliseconds 0 or more.
   */
  async advance(milliseconds: number): Promise<void> {
    const end = this._now + checkNumber('milliseconds', milliseconds, [0, LONGEST, 'milliseconds']);
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
   * Let time pass until something is so.
   *
   * @param happened Asked after each timer.
   * @param limit Milliseconds after which it is given up; default an hour.
   * @returns Milliseconds that passed.
   * @throws Error It did not come true.
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

  /** Suspend the machine: only the wall clock moves. */
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

/** Yield until nothing is left to do. */
async function idle(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise<void>(inTurn);
}
