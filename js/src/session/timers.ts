/** Timers of a session: which are running, and which start at the end of the current call. */

import type { Ports, TimerName } from './ports.js';

/** Longest timer that every platform supports, milliseconds: 24.8 days. */
const MAX_TIMER = 2 ** 31 - 1;

/** Timers by name. */
export class Timers {
  private readonly _running = new Set<TimerName>();
  /** Milliseconds of the timers that start at the end of the current call. */
  private readonly _due: { pace?: number | undefined; rejoin?: number | undefined } = {};
  /** Some timers start at the end of the current call. */
  hasDue = false;

  constructor(private readonly _ports: Ports) {}

  has(name: TimerName): boolean {
    return this._running.has(name);
  }

  /** Start or restart it. */
  start(name: TimerName, after: number): void {
    this._running.delete(name);
    this._running.add(name);
    this._ports.startTimer(name, after);
  }

  stop(...names: readonly TimerName[]): void {
    for (const name of names) {
      if (this._running.delete(name)) this._ports.cancelTimer(name);
    }
  }

  stopAll(): void {
    this.stop(...this._running);
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

  /** Start it at the end of the current call; undefined: do not. */
  postpone(name: 'pace' | 'rejoin', after: number | undefined): void {
    this._due[name] = after;
    this.hasDue = true;
  }

  /** Whether it is running or about to start. */
  expects(name: 'pace' | 'rejoin'): boolean {
    return this._running.has(name) || this._due[name] !== undefined;
  }

  /** End the current call. */
  startDue(): void {
    this.hasDue = false;
    for (const name of ['pace', 'rejoin'] as const) {
      const after = this._due[name];
      this._due[name] = undefined;
      if (after !== undefined) this.start(name, after);
    }
  }
}
