/** Bounds of the arguments of operations. */

/** Patterns that one subscription takes. */
export const PATTERNS_MAX = 1_000;

/** Messages of a topic that `history` may ask for. */
export const HISTORY_MAX = 10_000;
