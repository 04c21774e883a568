/** Which timers of a session run, and which start when the call at hand ends. */

import type { Ports, TimerName } from './ports.js';

/** Longest timer that every platform has, milliseconds: 24.8 days. */
const MAX_TIMER = 2 ** 31 - 1;

/** Timers by name. */
export class Timers {
  private readonly _running = new Set<TimerName>();
  /** Milliseconds of the timers that start when the call at hand ends. */
  private readonly _due: { pace?: number | undefined; rejoin?: number | undefined } = {};
  /** Some start when the call at hand ends. */
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

  /** Have it run out after so long, if that is ahead and a timer can be so long. */
  limit(name: TimerName, after = 0): void {
    this.stop(name);
    if (after > 0 && after <= MAX_TIMER) this.start(name, after);
  }

  /** It has run out; whether it was running. */
  fired(name: TimerName): boolean {
    return this._running.delete(name);
  }

  /** Start it when the call at hand ends; undefined: do not. */
  postpone(name: 'pace' | 'rejoin', after: number | undefined): void {
    this._due[name] = after;
    this.hasDue = true;
  }

  /** Whether it runs, or is about to. */
  expects(name: 'pace' | 'rejoin'): boolean {
    return this._running.has(name) || this._due[name] !== undefined;
  }

  /** The call at hand ends. */
  startDue(): void {
    this.hasDue = false;
    for (const name of ['pace', 'rejoin'] as const) {
      const after = this._due[name];
      this._due[name] = undefined;
      if (after !== undefined) this.start(name, after);
    }
  }
}
