/**
 * How frames reach a server: one small interface for sockets, event streams and tests.
 *
 * A transport knows nothing of cursors or retries. It opens once, carries frames both ways, and ends
 * once; a reconnect takes another object.
 */

import type { ClientFrame } from '../generated/wire.js';
import type { Decoded } from '../wire/decoded.js';

/** Why a transport could not be opened, or has ended. */
export interface TransportEnd {
  /** Close code that says what to do (`close_codes` of spec/errors.yaml); undefined where none came. */
  readonly code: number | undefined;
  /** One sentence for humans, without tokens. */
  readonly reason: string;
  /** Earliest next attempt in milliseconds from now, if the server sent it. */
  readonly retryAfter?: number | undefined;
  /** Nothing is wrong: the way to the server has changed, and is free at once. */
  readonly again?: boolean | undefined;
}

/** Receives the events of a transport. */
export interface Receiver {
  /** It is open. */
  opened(): void;
  /** Something came, in this order: a frame or none, or what is yet to be read. */
  frame(read: Decoded | Promise<Decoded>): void;
  /** It could not be opened, or has ended; nothing follows. */
  ended(end: TransportEnd): void;
}

/** One connection to a server. */
export interface Transport {
  /**
   * Whether a `subscribe` adds to what is subscribed (socket), or all those of one turn of the
   * event loop replace it (event stream).
   */
  readonly incremental: boolean;
  /** Time, by `Clock.now`, of the last byte that came in. */
  readonly lastHeard: number;
  /** Connect. */
  open(receiver: Receiver): void;
  /** Queue frames. Never throws; frames for a transport that has ended are forgotten. */
  send(frames: readonly ClientFrame[]): void;
  /** End it; nothing is reported after that. Harmless when it has ended. */
  close(code?: number): void;
}
