/** What a text was read as: a frame, or none. */

import type { ServerFrame } from '../generated/wire.js';

/** Levels of arrays and objects that a frame may have. */
export const DEPTH_MAX = 200;

/** Text that is not a frame in any reading. */
export class Malformed {
  /** @param reason Why, without any of its content. */
  constructor(readonly reason: string) {}
}

/** A well-formed frame of a type that this version does not know; to be ignored. */
export class Unknown {
  /** Tells it from a frame, which has a `type` too. */
  readonly known: false = false;

  /** @param type The type, at most 64 characters of it. */
  constructor(readonly type: string) {}
}

/** What a text was read as. */
export type Decoded = ServerFrame | Malformed | Unknown;

/** Whether it is nested so deeply that a recursive walk could overflow. */
export function isDeep(value: unknown, left: number = DEPTH_MAX): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return left === 0 || Object.values(value).some((one) => isDeep(one, left - 1));
}
