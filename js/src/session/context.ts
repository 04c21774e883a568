/** What the parts of a session share: options, ports, timers, and the peer of the moment. */

import type { SessionOptions } from '../settings/session.js';
import type { Peer } from './peer.js';
import type { Ports } from './ports.js';
import { Timers } from './timers.js';

/** The ground of every part of a session. */
export class Context {
  /** The server while authenticated: only then do frames of subscriptions and publishes count. */
  peer: Peer | undefined;
  readonly timers: Timers;

  /**
   * @param options What the session is set to.
   * @param ports What it does to the world.
   * @param random A number from 0 inclusive to 1 exclusive.
   */
  constructor(
    readonly options: SessionOptions,
    readonly ports: Ports,
    readonly random: () => number,
  ) {
    this.timers = new Timers(ports);
  }
}
