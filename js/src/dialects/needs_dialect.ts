/** Determines which servers need a dialect: an adapter between codec and session. */

import type { AuthOkFrame } from '../generated/wire.js';

/** Features that a session relies on. */
const CURRENT = ['ref', 'ack', 'seq', 'idempotency', 'batch'];

/** Whether the server lacks a feature that a session relies on. */
export function needsDialect({ version, features = [] }: AuthOkFrame): boolean {
  return version === undefined || !CURRENT.every((feature) => features.includes(feature));
}
