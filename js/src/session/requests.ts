/** Requests of the program to a session. */

import type { Publication } from '../generated/wire.js';
import type { SendPolicy } from '../settings/options.js';

/** The program subscribes. */
export interface Subscribe {
  /** Chosen by the caller, not used before; identifies the subscription at the ports. */
  readonly sub: number;
  /** Valid patterns, at least one, none twice. */
  readonly topics: readonly string[];
  /** Replay messages newer than this, Unix milliseconds. */
  readonly since?: number | undefined;
  /** Replay at most this many of the newest messages per topic. */
  readonly history?: number | undefined;
  /** Replay messages after these positions, by concrete topic. Undefined: unknown to this peer. */
  readonly after?: ReadonlyMap<string, number | undefined> | undefined;
  /** Whether presence is wanted; default false. Requires the session's part `presence`. */
  readonly presence?: boolean | undefined;
}

/** The program publishes. */
export interface Publish {
  /** Chosen by the caller, not used before; identifies the publish at the port `settle`. */
  readonly ref: number;
  /** Valid publications in order, each with an id: one, or at least one with `batch`. */
  readonly messages: readonly Publication[];
  /** Their size on the wire in bytes, for the limit of the queue. */
  readonly size: number;
  /** What to do if the queue is full; default `error`. With `block`, the queue takes it anyway. */
  readonly policy?: SendPolicy | undefined;
  /** This publish replaces an unsent one of the same key; only with the policy `latest`. */
  readonly key?: string | undefined;
  /** Send as one frame, with one answer per item. */
  readonly batch?: boolean | undefined;
  /** Send after the others when the rate is used up. */
  readonly background?: boolean | undefined;
}
