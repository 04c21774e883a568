/** What the program asks of a session. */

import type { Publication } from '../generated/wire.js';

/** What a full send queue does with one more publish; the policy `block` is the client's matter. */
export type SendPolicy = 'error' | 'drop_oldest' | 'latest';

/** The program wants messages. */
export interface Subscribe {
  /** Chosen by the caller, not used before; names the subscription at the ports. */
  readonly sub: number;
  /** Valid patterns, at least one, none twice. */
  readonly topics: readonly string[];
  /** Replay what is newer than this, Unix milliseconds. */
  readonly since?: number | undefined;
  /** Replay at most this many of the newest messages per topic. */
  readonly history?: number | undefined;
  /** Replay what follows these positions, by concrete topic. */
  readonly after?: ReadonlyMap<string, number> | undefined;
  /** Whether presence is wanted; default false. The session must have its part `presence` then. */
  readonly presence?: boolean | undefined;
}

/** The program publishes. */
export interface Publish {
  /** Chosen by the caller, not used before; names the publish at the port `settle`. */
  readonly ref: number;
  /** Valid publications in order, each with an id; one, unless `batch`. */
  readonly messages: readonly Publication[];
  /** Their size on the wire in bytes, for the bound of the queue. */
  readonly size: number;
  /** What to do if the queue is full; default `error`. */
  readonly policy?: SendPolicy | undefined;
  /** With the policy `latest`: an unsent publish of the same key is given up for this one. */
  readonly key?: string | undefined;
  /** Sent as one frame with one answer an item. */
  readonly batch?: boolean | undefined;
  /** Sent after the others when the rate is used up. */
  readonly background?: boolean | undefined;
}
