/** Shared state of a session: options, ports, timers, and the current peer. */

import type { SessionOptions } from '../settings/session.js';
import type { Peer } from './peer.js';
import type { Ports } from './ports.js';
import { Timers } from './timers.js';

/** Base of every part of a session. */
export class Context {
  /** The server while authenticated: only then do frames of subscriptions and publishes count. */
  peer: Peer | undefined;
  readonly timers: Timers;

  /**
   * @param options Its options.
   * @param ports Its environment.
   * @param random A number from 0 inclusive to 1 exclusive.
   */
  constructor(
    public options: SessionOptions,
    readonly ports: Ports,
    readonly random: () => number,
  ) {
    this.timers = new Timers(ports);
  }
}
