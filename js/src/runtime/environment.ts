/** A client and its environment, as the parts use them; the driver implements the client. */

import { DEVELOPMENT } from '../build.js';
import { type Clock, SystemClock } from '../clock.js';
import type { PubSubError } from '../errors.js';
import type { Publication } from '../generated/wire.js';
import type { Request } from '../session/cursor.js';
import type { Acked, Peer, TransportName } from '../session/ports.js';
import type { OperatedSession } from '../session/session.js';
import { invalid } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import type { Transport, TransportEnd } from '../transports/transport.js';
import { WebSocketTransport } from '../transports/websocket.js';
import type { StateChange, StateName } from '../values.js';
import type { Listeners, Recent } from './handlers.js';
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
    before: Promise<unknown> | undefined,
  ): Promise<Acked | undefined>;
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
  readonly transport: TransportName | undefined;
  readonly disconnectedSince: number;
  readonly lastFailure: StateChange | undefined;
  /** Why the last WebSocket did not open, or has ended; undefined if it still opens. */
  readonly socketFailure: string | undefined;
  readonly tokenFailure: PubSubError | undefined;
  readonly over: AbortSignal;
  readonly idle: number;
  readonly maxPayload: number;
  /** Whether to let the program run before the next frame: an inbox is full, or has failed. */
  giveWay: boolean;
  timed<Options extends Waiting>(options: Options): Options & Timed;
  checkOpen(): void;
  part<Part>(load: () => Promise<Part>, options: Timed): Promise<Part>;
  states(): Recent<StateChange>;
  perform(call: (session: OperatedSession) => void): void;
  /** A frame was handled. */
  handled(): void;
  /** The transport has closed or did not open. */
  dropped(end: TransportEnd): void;
  /** Load the parts that a welcomed session needs. */
  background(): Promise<void>;
  readonly http: () => Promise<HttpPublishes>;
  readonly recovery: () => Promise<{ place(patterns: readonly string[]): Partial<Request> }>;
}

/**
 * Use the event stream if the platform has no WebSocket. This is checked when the client connects,
 * because a program may define `globalThis.WebSocket` after it has created the client.
 *
 * @throws InvalidOption A WebSocket is required.
 */
export function checkPlatform({ options, environment, session }: Client): void {
  if (options.transport === 'sse' || environment.hasWebSocket?.(options) !== false) return;
  if (options.transport === 'websocket') {
    throw invalid(
      'WebSocket',
      'is required: this platform has none',
      'Pass `WebSocket` of the package `ws`.',
    );
  }
  session.context.options = { ...options, transport: 'sse' };
  session.lifecycle._choice._name = 'sse';
}

/** The platform's environment; code that the first connection does not need loads in parallel. */
export const platform: Environment = {
  clock: new SystemClock(),
  opened: new Set(),
  random: Math.random,
  // Every browser has WebSockets.
  ...(DEVELOPMENT && {
    hasWebSocket: ({ WebSocket = globalThis.WebSocket }: ClientOptions) => Boolean(WebSocket),
  }),
  dial(name, options, alone) {
    const { clock, random } = platform;
    if (name === 'websocket') {
      if (options.shareTabs === undefined || alone) return new WebSocketTransport(options, clock);
      return import('../tabs/link.js').then((tabs) => tabs.linkTabs(options, clock));
    }
    return import('../transports/sse.js').then(
      (sse) => new sse.SseTransport(options, clock, random),
    );
  },
};
