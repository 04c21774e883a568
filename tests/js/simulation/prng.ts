/**
 * The only random generator of a simulation: mulberry32, with 32-bit integers.
 *
 * The same seed gives the same numbers in every language; `tests/simulation/prng.py` describes the
 * algorithm.
 */

/** Random numbers from a seed. */
export class Random {
  private _state: number;

  constructor(seed: number) {
    this._state = seed >>> 0;
  }

  /** 0 to 2^32 - 1. */
  u32(): number {
    this._state = (this._state + 0x6d2b79f5) >>> 0;
    const s = this._state;
    let t = Math.imul(s ^ (s >>> 15), s | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  /** 0 to n - 1; n is less than 2^20. */
  below(n: number): number {
    return Math.floor((this.u32() * n) / 2 ** 32);
  }

  /** From low to high, both inclusive. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  /** True with this probability in thousandths. */
  chance(thousandths: number): boolean {
    return this.below(1000) < thousandths;
  }

  /** One of these values. */
  pick<T>(values: readonly T[]): T {
    const at = this.below(values.length);
    for (const value of values.slice(at)) return value;
    throw new RangeError('nothing to pick from');
  }

  /** From 0 inclusive to 1 exclusive; exact in a double. */
  unit(): number {
    return this.u32() / 4294967296;
  }
}
