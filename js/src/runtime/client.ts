/** The client, as its parts use it; the driver implements it. */

import type { Clock } from '../clock.js';
import type { PubSubError } from '../errors.js';
import type { Peer } from '../session/peer.js';
import type { Outcome, TransportName } from '../session/ports.js';
import type { Publish } from '../session/requests.js';
import type { Session } from '../session/session.js';
import type { ClientOptions } from '../settings/options.js';
import type { Transport } from '../transports/transport.js';
import type { StateChange, StateName } from '../values.js';
import type { Listeners } from './listeners.js';
import type { Recent } from './stream.js';
import type { TokenSource } from './tokens.js';
import type { Waiting } from './waiting.js';

/** State and operations of a client. */
export interface Client {
  readonly options: ClientOptions;
  readonly environment: {
    random(): number;
    dial(
      name: TransportName,
      options: ClientOptions,
      alone: boolean,
    ): Transport | Promise<Transport>;
  };
  readonly clock: Clock;
  readonly listeners: Listeners;
  readonly tokens: TokenSource;
  readonly session: Session;
  readonly peer: Peer | undefined;
  readonly state: StateName;
  readonly disconnectedSince: number;
  readonly lastFailure: StateChange | undefined;
  readonly tokenFailure: PubSubError | undefined;
  readonly over: AbortSignal;
  readonly idle: number;
  readonly maxPayload: number;
  number(): number;
  timeoutOf(timeout?: number): number;
  checkOpen(): void;
  part<Part>(loading: Promise<Part>, options: Waiting): Promise<Part>;
  addPresence(options: Waiting): Promise<void>;
  connect(): void;
  states(): Recent<StateChange>;
  perform(call: (session: Session) => void): void;
  settled(ref: number, call: (session: Session) => void): Promise<Outcome>;
  settle(ref: number, outcome: Outcome): void;
  rememberOwn(messages: Publish['messages']): void;
}
