/** Virtual time: schedules events in an order that depends only on the seed. */

import { Random } from './prng.js';

/** Unix milliseconds at the start of a simulation. */
export const START = 1_700_000_000_000;

interface Plan {
  readonly at: number;
  readonly number: number;
  readonly todo: () => void;
}

/** A clock, a queue of scheduled events, and random numbers. */
export class World {
  /** Virtual Unix milliseconds. */
  now = START;
  /** Random numbers of the scenario, the server and the network. */
  readonly random: Random;
  /** Whether faults have ended. */
  calm = false;
  private readonly _heap: Plan[] = [];
  private _number = 0;

  constructor(seed: number) {
    this.random = new Random(seed);
  }

  /** Schedule an event. Events at the same time run in the order of scheduling. */
  after(milliseconds: number, todo: () => void): number {
    this._number += 1;
    this._push({ at: this.now + milliseconds, number: this._number, todo });
    return this._number;
  }

  /** Run all events up to a time. */
  run(until: number): void {
    for (let next = this._heap[0]; next && next.at <= until; next = this._heap[0]) {
      this._pop();
      this.now = next.at;
      next.todo();
    }
    this.now = until;
  }

  /** Whether a fault with this probability happens; never when all is calm. */
  fault(thousandths: number): boolean {
    return this.random.chance(thousandths) && !this.calm;
  }

  private _push(plan: Plan): void {
    const heap = this._heap;
    let at = heap.push(plan) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above];
      if (!parent || !sooner(plan, parent)) break;
      heap[at] = parent;
      heap[above] = plan;
      at = above;
    }
  }

  private _pop(): void {
    const heap = this._heap;
    const last = heap.pop();
    if (!last || !heap.length) return;
    heap[0] = last;
    for (let at = 0; ; ) {
      let least = last;
      let place = at;
      for (const below of [2 * at + 1, 2 * at + 2]) {
        const child = heap[below];
        if (child && sooner(child, least)) {
          least = child;
          place = below;
        }
      }
      if (place === at) return;
      heap[at] = least;
      heap[place] = last;
      at = place;
    }
  }
}

function sooner(a: Plan, b: Plan): boolean {
  return a.at < b.at || (a.at === b.at && a.number < b.number);
}
