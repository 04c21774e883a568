/**
 * A transport carries frames: one small interface for sockets, event streams and tests.
 *
 * A transport has no cursors and does not retry. It opens once, carries frames in both directions,
 * and ends once; a reconnect uses a new object.
 */

import type { ClientFrame } from '../generated/wire.js';
import type { Decoded } from '../wire/decoded.js';

/** Why a transport could not be opened, or has ended. */
export interface TransportEnd {
  /**
   * Close code, which determines the reaction (`close_codes` of spec/errors.yaml); missing if
   * none was received.
   */
  readonly code?: number | undefined;
  /** One sentence for humans, without tokens. */
  readonly reason: string;
  /** Earliest next attempt in milliseconds from now, if the server sent it. */
  readonly retryAfter?: number | undefined;
  /**
   * Whether the platform hides why the transport could not be opened, so that another transport to
   * the server may know it; only in the development build.
   */
  readonly hidden?: boolean | undefined;
  /**
   * Whether there is no failure: the route to the server has changed, and a reconnect can start at
   * once.
   */
  readonly again?: boolean | undefined;
}

/** The end of a connection because a part of the client does not load. */
export const NOT_LOADED: TransportEnd = {
  reason: 'A part of the client did not load.',
  // With a time, it does not count against the transport.
  retryAfter: 0,
};

/** Receives the events of a transport. */
export interface Receiver {
  /** The transport is open. */
  opened(): void;
  /** Receives frames and parse errors in order; a promise if the frame is not parsed yet. */
  frame(read: Decoded | Promise<Decoded>): void;
  /** The transport could not be opened, or has ended. It is the last call. */
  ended(end: TransportEnd): void;
}

/** One connection to a server. */
export interface Transport {
  /**
   * Whether a `subscribe` frame adds to the subscriptions (socket). If false, all `subscribe`
   * frames of one turn of the event loop replace them (event stream).
   */
  readonly incremental: boolean;
  /** Time of the last received byte, by `Clock.now`. */
  readonly lastReceived: number;
  /** Start to connect. */
  open(receiver: Receiver): void;
  /** Queue frames. Never throws; discards the frames if the transport has ended. */
  send(frames: readonly ClientFrame[]): void;
  /** End it. It reports nothing afterwards. Has no effect if it has ended. */
  close(code?: number): void;
}
