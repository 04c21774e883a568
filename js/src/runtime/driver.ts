/**
 * The driver: implements the ports of the session, and the operations of a client.
 *
 * A call into the session calls the ports; then `handled` does what must not happen during it:
 * write, dial, end failed subscriptions. User code never runs here.
 */

import { DEVELOPMENT } from '../build.js';
import type { Clock, TimerHandle } from '../clock.js';
import type { Loose } from '../compact.js';
import { AuthRefused, ClosedError, ConnectionFailed, fromCode, PubSubError } from '../errors.js';
import type { AuthFrame, ClientFrame, ErrorInfo } from '../generated/wire.js';
import { logText } from '../log_text.js';
import { codeOf } from '../session/events.js';
import type {
  Peer,
  Ports,
  Rejected,
  StateChanged,
  TimerName,
  TransportName,
} from '../session/ports.js';
import { type OperatedSession, Session } from '../session/session.js';
import { checkNumber, TIME } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import { NOT_LOADED, type Transport, type TransportEnd } from '../transports/transport.js';
import type { StateChange, StateName, TokenReason, Via } from '../values.js';
import type { Background } from './background.js';
import { Connection } from './connection.js';
import { type Client, checkPlatform, type Environment } from './environment.js';
import { Listeners, type Recent } from './handlers.js';
import type { HttpApi } from './http_operations.js';
import { lazily } from './parts.js';
import type { Recovery } from './recovery.js';
import { rejected } from './rejected.js';
import { TokenSource, tokenProblem } from './tokens.js';
import { type Timed, type Waiting, within } from './waiting.js';

/** The part of a client that loads beside its first connection. */
export const BACKGROUND: { load: () => Promise<typeof import('./background.js')> } = {
  load: lazily(() => import('./background.js')),
};

/** Close code of a connection that ended without one (docs/errors.md). */
const LOST = 1006;

export class Driver implements Client, Ports {
  readonly clock: Clock;
  readonly listeners: Listeners;
  readonly tokens: TokenSource;
  readonly session: OperatedSession;
  state: StateName = 'initialized';
  /** Since when there has been no connection, by the clock; only for texts of errors. */
  declare disconnectedSince: number;
  /** Failure of the last connection or attempt, until there is a connection again. */
  lastFailure: StateChange | undefined;
  /** The failure whose reason the platform hides; only in the development build. */
  declare unexplained: StateChange | undefined;
  /** The reason why there is no token, until there is one. */
  tokenFailure: PubSubError | undefined;
  /** The peer's features and limits; undefined before the first connection. */
  peer: Peer | undefined;
  giveWay = false;
  /** The operations; undefined before that part is loaded. */
  _background: Background | undefined;
  private _provide!: (background?: Background) => void;
  /** Resolves when that part is loaded; without it, when the program closes the client before. */
  private readonly _provided = new Promise<Background | undefined>((resolve) => {
    this._provide = resolve;
  });
  /** Number of calls that wait for it. */
  private _entering = 0;
  private _error: PubSubError | undefined;
  private readonly _over = new AbortController();
  /** Aborted when the client has ended. */
  readonly over: AbortSignal = this._over.signal;
  private _closing = false;
  private _fetching: AbortController | undefined;
  private readonly _timers = new Map<TimerName, TimerHandle>();
  /** The transport to dial after the current call. */
  private _next: TransportName | undefined;
  /** Counts the calls of `dial` and `hangUp`; a transport of an earlier call is discarded. */
  private _dials = 0;
  _connection: Connection | undefined;
  /** Why the last WebSocket failed; only in the development build. */
  declare socketFailure: string | undefined;
  /** The last error of the server on this connection; only in the development build. */
  declare private _problem: Loose<ErrorInfo> | undefined;

  constructor(
    readonly options: ClientOptions,
    readonly environment: Environment,
  ) {
    this.clock = environment.clock;
    this.listeners = new Listeners(options.logger);
    this.tokens = new TokenSource(options, this.clock);
    this.session = new Session(options, this, environment.random) as OperatedSession;
  }

  /** Call into the session, then perform its effects. */
  perform(call: (session: OperatedSession) => void): void {
    call(this.session);
    this.handled();
  }

  // ---------------------------------------------------------------- from the connection

  dropped(end: TransportEnd): void {
    const { again, code = LOST, retryAfter } = end;
    let reason = this.tokens._redacted(end.reason);
    if (DEVELOPMENT) {
      const problem = this._problem;
      if (problem && [reason, codeOf(code)].includes(problem.code)) {
        reason = problem.message || reason;
      }
      if (this._connection?._transport.incremental) this.socketFailure = reason;
    }
    this._connection = undefined;
    // A connection that was never open is not urgent.
    const hurry = again && this.state === 'connected';
    this.perform((session) => session.dropped(code, reason, retryAfter));
    if (DEVELOPMENT && end.hidden) this.unexplained = this.lastFailure;
    if (hurry) this.perform((session) => session.woke(true));
  }

  /** After a call into the session: write, dial, end failed subscriptions. */
  handled(): void {
    if (this._next) this._open(this._next);
    this._connection?.flush();
    this._background?.publisher.handled();
  }

  // ---------------------------------------------------------------- ports of the session

  stateChanged({ public: to, code, reason = '', retryIn, attempt }: StateChanged): void {
    const from = this.state;
    if (from === to) return;
    const change = { from, to, code, reason, retryIn, attempt };
    this.state = to;
    if (DEVELOPMENT && (from === 'connected' || from === 'initialized')) {
      this.disconnectedSince = this.clock.now();
    }
    if (DEVELOPMENT && (attempt || this.transport === 'sse')) warn(this);
    if (to === 'connected') this.lastFailure = undefined;
    else if (code !== undefined || reason) this.lastFailure = change;
    this.options.logger.debug?.(logText([from, '->', to, code].join(' ').trim()));
    this.listeners.notify('state', change);
  }

  welcomed(peer: Peer): void {
    this.peer = peer;
    if (peer.incremental) this.environment.opened?.add(this.options.socketUrl);
    if (peer.tokenLife !== undefined) this.tokens.learn(peer.tokenLife);
  }

  fetchToken(call: number, reason: TokenReason, attempt: number): void {
    this._fetching = new AbortController();
    const { signal } = this._fetching;
    this.tokens.fetch(reason, attempt, signal).then(
      ({ value, expiresAt }) => {
        this.tokenFailure = undefined;
        const left = expiresAt && Math.max(0, expiresAt - this.clock.wallMs());
        this.perform((session) => session.token(call, value, left));
      },
      (error: unknown) => {
        if (signal.aborted) return;
        const refused = error instanceof AuthRefused;
        const message = tokenProblem(error);
        if (!refused) {
          const last = this.tokenFailure?.message;
          this.tokenFailure = fromCode('token_unavailable', message, {
            cause: error,
            ...(DEVELOPMENT && error instanceof PubSubError && { remedy: error.remedy }),
          });
          // Each attempt fails with the same cause until the program has fixed it.
          if (last !== message) this.listeners.report(this.tokenFailure);
        }
        this.perform((session) => session.tokenFailed(call, refused, message));
      },
    );
  }

  abandonFetch(): void {
    this._fetching?.abort();
  }

  dial(transport: TransportName): void {
    if (DEVELOPMENT) this._problem = undefined;
    if (DEVELOPMENT && transport === 'websocket') this.socketFailure = undefined;
    this._next = transport;
  }

  hangUp(code: number): void {
    this._connection?.close(code);
    this._next = this._connection = undefined;
    this._dials += 1;
  }

  send(frame: Loose<ClientFrame>): void {
    this._connection?.send(frame);
  }

  startTimer(name: TimerName, after: number): void {
    const fire = (): void => this.perform((session) => session.timerFired(name, this.idle));
    this.cancelTimer(name);
    this._timers.set(name, this.clock.callLater(after, fire));
  }

  cancelTimer(name: TimerName): void {
    this._timers.get(name)?.cancel();
  }

  probe(auth?: Loose<AuthFrame>): void {
    const answer = (ok: boolean): void => {
      this.perform((session) => (auth ? session.answered(ok) : session.probed(ok)));
      if (DEVELOPMENT && !ok) warn(this);
    };
    import('../transports/sse.js')
      .then(({ probe }) => probe(this, auth as AuthFrame | undefined))
      .then(answer, () => answer(false));
  }

  problem(problem: Loose<ErrorInfo>): void {
    if (DEVELOPMENT) this._problem = problem;
    this.listeners.report(rejected(problem));
  }

  finished(error: Rejected | undefined): void {
    if (error) this._error = rejected(error);
    this._over.abort(this._error ?? new ClosedError());
    this._background?.publisher.finish(this._error);
    this.listeners.finish();
  }

  // ---------------------------------------------------------------- operations

  /**
   * A part of the client, if it loads before the call that needs it is given up.
   *
   * @param failure Why it has not loaded, if this is known.
   */
  async part<Part>(
    load: () => Promise<Part | undefined>,
    options: Timed,
    failure?: () => unknown,
  ): Promise<Part> {
    const part = await within(load(), options, this.clock);
    if (part) return part;
    throw (
      failure?.() ??
      new ConnectionFailed(
        DEVELOPMENT
          ? `A part of the client did not load within ${options.timeout} ms (\`timeout\`).`
          : NOT_LOADED.reason,
      )
    );
  }

  /** The operations of the client, which load beside its first connection. */
  async background(): Promise<void> {
    const { Background } = await BACKGROUND.load();
    this._background ??= new Background(this);
    this._provide(this._background);
  }

  /**
   * Connect, and call an operation with its options at this time. Before that part is loaded, calls
   * wait in their order.
   */
  async operate<Options extends Waiting & { readonly via?: Via | undefined }, Result>(
    given: Options,
    call: (background: Background, options: Options & Timed) => Promise<Result>,
  ): Promise<Result> {
    const options = this.timed(given);
    if (options.via !== 'rest') this.connect();
    if (this._background && !this._entering) return call(this._background, options);
    this._entering += 1;
    try {
      return call(await this._loaded(options), options);
    } finally {
      // Without such a call, there is nothing that `close` could wait for.
      if (!--this._entering && this._closing) this._provide();
    }
  }

  readonly http: () => Promise<HttpApi> = lazily(() =>
    import('./http_operations.js').then(({ HttpApi }) => new HttpApi(this)),
  );

  /** State that survives a reload of the page. */
  readonly recovery: () => Promise<Recovery> = lazily(() =>
    import('./recovery.js').then(({ Recovery }) => new Recovery(this)),
  );

  /** Milliseconds since the last byte of the server; 0 without a connection. */
  get idle(): number {
    return this._connection?.idle ?? 0;
  }

  /**
   * The options of a call that begins now, with the timeout in force.
   *
   * @throws Error The reason of the signal, if that is aborted already.
   */
  timed<Options extends Waiting>(options: Options): Options & Timed {
    options.signal?.throwIfAborted();
    const { timeout = this.options.operationTimeout } = options;
    if (DEVELOPMENT) checkNumber('timeout', timeout, TIME);
    return { ...options, timeout, end: this.clock.now() + timeout };
  }

  /** Maximum bytes of JSON of a message's data. */
  get maxPayload(): number {
    return this.peer?.limits?.max_payload || this.options.maxPayload;
  }

  /** The current transport; undefined while the client is not connected. */
  get transport(): TransportName | undefined {
    if (this.state !== 'connected') return undefined;
    return this._connection?._transport.incremental ? 'websocket' : 'sse';
  }

  /** @throws ClosedError The client is closed; if it failed, its error. */
  checkOpen(): void {
    const { _error: cause } = this;
    if (!this._closing && !this.over.aborted) return;
    if (!cause) throw new ClosedError();
    // Create a new error for each call, so that its stack shows the caller.
    throw fromCode(cause.code, cause.message, { ...cause, cause });
  }

  /**
   * Connect, unless this was requested before.
   *
   * @throws InvalidOption A WebSocket is required, but the platform has none.
   */
  connect(): void {
    if (this.state !== 'initialized') return;
    if (DEVELOPMENT) checkPlatform(this);
    void this._provided.then((background) => background?.watch());
    this.perform((session) =>
      session.connect(this.environment.opened?.has(this.options.socketUrl)),
    );
  }

  /** Settle the publishes and end. */
  async close(milliseconds: number | undefined): Promise<void> {
    const { clock } = this;
    const timeout = milliseconds ?? this.options.closeTimeout;
    if (DEVELOPMENT) checkNumber('timeout', timeout, [0, TIME[1], TIME[2]]);
    const options = { timeout, end: clock.now() + timeout };
    const states = this.states();
    this._closing = true;
    // Calls that wait for the operations are earlier.
    if (this._entering) await this._loaded(options).catch(() => {});
    this.perform((session) =>
      options.timeout ? session.close(options.end - clock.now()) : session.abort(),
    );
    for await (const _ of states);
    await within(Promise.resolve(this._background?.publisher.requests), options, clock);
  }

  /** Changes of state from now on, until the client has ended. */
  states(): Recent<StateChange> {
    const states = this.listeners.open('state');
    if (this.over.aborted) states.finish();
    return states;
  }

  // ---------------------------------------------------------------- inside

  /** Wait until the operations are loaded; waits end in the order in which they began. */
  private _loaded(options: Timed): Promise<Background> {
    // If they do not load now, the next connection or call tries again, until the program closes the
    // client: then nothing can be sent.
    let failure: unknown;
    this.background().catch((error: unknown) => {
      failure = error;
      if (this._closing) this._provide();
    });
    const provided = () => within(this._provided, { signal: this.over });
    return this.part(provided, options, () => failure);
  }

  /** Open a transport when it has been created. */
  private _open(name: TransportName): void {
    const number = ++this._dials;
    this._next = undefined;
    const dialed = this.environment.dial(name, this.options);
    const open = (transport: Transport): void => {
      if (number !== this._dials) return;
      this._connection = new Connection(this, transport);
      transport.open(this._connection);
    };
    // The client id of the previous page must be known before `auth`.
    const made = this.options.recover === undefined ? dialed : this.recovery().then(() => dialed);
    if (made instanceof Promise) {
      made.then(open, () => {
        if (number === this._dials) this.dropped(NOT_LOADED);
      });
    } else {
      open(made);
    }
  }
}

/** Log a problem of the connection; only in the development build. */
function warn(driver: Driver): void {
  // Without the condition, the production build would contain the chunk, and never load it.
  if (DEVELOPMENT)
    import('./connection_warnings.js').then(
      ({ warnOfConnection }) => warnOfConnection(driver),
      () => {}, // only a warning is missing
    );
}
