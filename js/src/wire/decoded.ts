/** Results of parsing a text as a frame. */

import type { ServerFrame } from '../generated/wire.js';

/** Maximum nesting of arrays and objects in a frame. */
export const DEPTH_MAX = 200;

/** Text that cannot be read as a frame. */
export class Malformed {
  /** @param reason The problem, without any content of the text. */
  constructor(readonly reason: string) {}
}

/** A well-formed frame of a type that this version does not know. The session ignores it. */
export class Unknown {
  /** Distinguishes it from a frame, which also has a `type`. */
  declare readonly known: false;

  /** @param type The type, truncated to 64 characters. */
  constructor(readonly type: string) {}
}

/** The result of parsing a text. */
export type Decoded = ServerFrame | Malformed | Unknown;

/** Whether the text is nested so deeply that a recursive walk could overflow the stack. */
export function isDeep(value: unknown, left: number = DEPTH_MAX): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return left === 0 || Object.values(value).some((one) => isDeep(one, left - 1));
}
