/** The running timers of a session. */

import type { Ports, TimerName } from './ports.js';

/** Longest timer that every platform supports, milliseconds: 24.8 days. */
const MAX_TIMER = 2_147_483_647;

/** Timers by name. */
export class Timers {
  /** Milliseconds of the running timers. */
  private readonly _running = new Map<TimerName, number>();

  constructor(private readonly _ports: Ports) {}

  /** Whether it is running. */
  has(name: TimerName): boolean {
    return this._running.has(name);
  }

  /** Its milliseconds; infinite if it does not run. */
  after(name: TimerName): number {
    return this._running.get(name) ?? Infinity;
  }

  /** Start or restart it. */
  start(name: TimerName, after: number): void {
    this._running.set(name, after);
    this._ports.startTimer(name, after);
  }

  stop(...names: readonly TimerName[]): void {
    for (const name of names) {
      if (this._running.delete(name)) this._ports.cancelTimer(name);
    }
  }

  stopAll(): void {
    this.stop(...this._running.keys());
  }

  /**
   * Let it fire after the given time, if that is in the future and within the maximum of a timer.
   */
  limit(name: TimerName, after = 0): void {
    this.stop(name);
    if (after > 0 && after <= MAX_TIMER) this.start(name, after);
  }

  /** It fired; returns whether it was running. */
  fired(name: TimerName): boolean {
    return this._running.delete(name);
  }
}
