/** The client and its environment, as the parts use them; the driver implements the client. */

import type { Clock } from '../clock.js';
import type { PubSubError } from '../errors.js';
import type { Publication } from '../generated/wire.js';
import type { Peer } from '../session/peer.js';
import type { Acked, TransportName } from '../session/ports.js';
import type { OperatedSession } from '../session/session.js';
import type { ClientOptions } from '../settings/options.js';
import type { Transport } from '../transports/transport.js';
import type { StateChange, StateName } from '../values.js';
import type { Listeners } from './listeners.js';
import type { Recent } from './stream.js';
import type { TokenSource } from './tokens.js';
import type { Timed, Waiting } from './waiting.js';

/** Time, randomness and transports. */
export interface Environment {
  /** Whether there are WebSockets; default true. */
  readonly hasWebSocket?: ((options: ClientOptions) => boolean) | undefined;
  readonly clock: Clock;
  /** WebSocket URLs that have worked in this page or process. */
  readonly opened?: Set<string>;
  /** A number from 0 inclusive to 1 exclusive. */
  random(): number;
  /** Create a transport that is not open yet; `alone` is not shared with other tabs. */
  dial(
    name: TransportName,
    options: ClientOptions,
    alone?: boolean,
  ): Transport | Promise<Transport>;
}

/** Publishes over HTTP; undefined if there is no HTTP API, and nothing was published. */
export interface HttpPublishes {
  publish(
    messages: readonly Publication[],
    options: Timed,
    certain: boolean,
  ): Promise<Acked | undefined>;
}

/** The start of a resumed subscription. */
export interface Place {
  readonly since?: number | undefined;
  readonly after?: Readonly<Record<string, number>> | undefined;
}

/** State and operations of a client, for the parts that load later. */
export interface Client {
  readonly options: ClientOptions;
  readonly environment: Environment;
  readonly clock: Clock;
  readonly listeners: Listeners;
  readonly tokens: TokenSource;
  readonly session: OperatedSession;
  readonly peer: Peer | undefined;
  readonly state: StateName;
  readonly disconnectedSince: number;
  readonly lastFailure: StateChange | undefined;
  readonly tokenFailure: PubSubError | undefined;
  readonly over: AbortSignal;
  readonly idle: number;
  readonly maxPayload: number;
  /** Whether to let the program run before the next frame: an inbox is full, or has failed. */
  crowded: boolean;
  timed<Options extends Waiting>(options: Options): Options & Timed;
  checkOpen(): void;
  part<Part>(load: () => Promise<Part>, options: Timed): Promise<Part>;
  states(): Recent<StateChange>;
  perform(call: (session: OperatedSession) => void): void;
  readonly http: () => Promise<HttpPublishes>;
  readonly recovery: () => Promise<{ place(patterns: readonly string[]): Place }>;
}
