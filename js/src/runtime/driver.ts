/**
 * The driver: performs what the session decides, and tells it what happens.
 *
 * Events are handled one at a time; what is fed while one is being handled waits for its turn, so a
 * session never sees two at once. User code never runs here.
 */

import type { Clock, TimerHandle } from '../clock.js';
import {
  AuthRefused,
  ClosedError,
  ConnectionFailed,
  fromCode,
  ProtocolError,
  type PubSubError,
} from '../errors.js';
import { publicState } from '../generated/lifecycle.js';
import type { AuthFrame, AuthOkFrame } from '../generated/wire.js';
import type { Effect, Fetch, Outcome, StateChanged } from '../session/effects.js';
import type { Event, Publish, Subscribe, TimerName } from '../session/events.js';
import type { PartName } from '../session/parts.js';
import { Session } from '../session/session.js';
import { checkPatience } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import type { Transport } from '../transports/transport.js';
import type { StateChange, StateName, SubscriptionEvent } from '../values.js';
import type { HttpApi } from './http_operations.js';
import type { Inbox } from './inbox.js';
import { lazily, operations } from './lazy.js';
import { Listeners } from './listeners.js';
import { PARTS } from './parts.js';
import { Reader } from './reader.js';
import type { Recovery } from './recovery.js';
import type { Recent } from './stream.js';
import { checkPlatform, type Surroundings, settingsOf } from './surroundings.js';
import { TokenSource, tokenProblem } from './tokens.js';
import type { Turnstile } from './turnstile.js';
import { type Waiting, within } from './waiting.js';

/** Close code of a client that is going to come back. */
const RECONNECTS = 4000;

/** What a connection without a close code counts as (docs/errors.md). */
const LOST = 1006;

/** Ids of own messages that are remembered with `echo: false`: what may be on its way back. */
const OWN_IDS = 10_000;

type Performers = {
  readonly [K in Effect['kind']]: (effect: Extract<Effect, { readonly kind: K }>) => void;
};

/** Runs one session: what a client is, once it is used. */
export class Driver {
  readonly clock: Clock;
  readonly listeners: Listeners;
  readonly tokens: TokenSource;
  state: StateName = 'initialized';
  finished = false;
  /** Since when there has been no connection, by the clock. */
  apartSince: number;
  /** What ended the last connection or attempt, until there is a connection again. */
  lastFailure: StateChange | undefined;
  /** Why there is no token, until there is one. */
  tokenFailure: PubSubError | undefined;
  /** What the server said of itself; undefined before it was ever connected. */
  welcome: AuthOkFrame | undefined;
  /** Called when all events were handled: there may be room for publishes. */
  onHandled: () => void = () => {};
  private _session: Session | undefined;
  private _error: PubSubError | undefined;
  private readonly _over = new AbortController();
  /** Aborted when the client has ended. */
  readonly over: AbortSignal = this._over.signal;
  private _closing = false;
  private _drain: number | undefined;
  private _fetching: AbortController | undefined;
  private _stopWatching: (() => void) | undefined;
  private _busy = false;
  private _numbers = 0;
  private readonly _queue: Event[] = [];
  /** By subscription. */
  readonly inboxes: Map<number, Inbox> = new Map();
  /** Those that got something at last, with the numbers of their subscriptions. */
  private readonly _touched: [inbox: Inbox, sub: number][] = [];
  private readonly _timers = new Map<TimerName, TimerHandle>();
  private readonly _settles = new Map<number, (outcome: Outcome) => void>();
  private readonly _own = new Set<string | undefined>();
  private readonly _reader: Reader;

  /**
   * @param options What the client is set to.
   * @param around Clock, randomness, transports.
   */
  constructor(
    readonly options: ClientOptions,
    readonly around: Surroundings,
  ) {
    this.clock = around.clock;
    this.apartSince = this.clock.now();
    this.listeners = new Listeners(options.logger);
    this.tokens = new TokenSource(options, this.clock);
    this._reader = new Reader(
      {
        receive: (frame, at) => {
          if (frame.type === 'auth.ok') this._greet(frame, at);
          this.feed({ kind: 'received', frame, at });
        },
        malformed: (reason) => {
          const said = `A frame of the server was left out: ${reason}.`;
          this.listeners.report(new ProtocolError(said));
        },
        opened: (incremental) => this.feed({ kind: 'opened', incremental }),
        dropped: ({ again, code = LOST, ...end }) => {
          // One that was never connected has no reason to hurry.
          const hurry = again && this.state === 'connected';
          this.feed({ kind: 'dropped', code, ...end });
          if (hurry) this.feed({ kind: 'woke', rested: true });
        },
      },
      (name) => {
        const made = (): Transport | Promise<Transport> => around.dial(name, options);
        if (options.recover === undefined) return made();
        return this.recovery().then((recovery) => recovery.wrap(made()));
      },
      this.clock,
      options.logger,
    );
  }

  // ---------------------------------------------------------------- events in, effects out

  /** Made at the first use: what the platform lacks does not matter before. */
  get session(): Session {
    const { options, around } = this;
    this._session ??= new Session(settingsOf(options, around), around.random);
    return this._session;
  }

  /** Have the session handle an event, now or after the one it is at. */
  feed(given: Event): void {
    this._queue.push(given);
    if (!this._busy) this._handleAll();
  }

  private _handleAll(): void {
    this._busy = true;
    let part: PartName | undefined;
    try {
      for (let event = this._queue[0]; event; event = this._queue[0]) {
        part = this.session.missing(event);
        if (part) {
          this._equip(part, event);
          return;
        }
        this._queue.shift();
        for (const effect of this.session.handle(event)) {
          (this._performers[effect.kind] as (effect: Effect) => void)(effect);
        }
        this._settle();
      }
    } finally {
      this._busy = part !== undefined;
    }
    this._reader.flush();
    this.onHandled();
  }

  /** Load what an event cannot be handled without; what comes meanwhile waits for its turn. */
  private async _equip(part: PartName, event: Event): Promise<void> {
    try {
      this.session.equip(await this.part(PARTS[part](), { timeout: this.options.openTimeout }));
    } catch (error) {
      const lost = error as ConnectionFailed;
      this._queue.shift();
      const { code, message } = lost;
      if (event.kind === 'subscribe') {
        this.inboxes.get(event.sub)?.finish(lost);
      } else if ('ref' in event && event.ref) {
        const outcome = { kind: 'rejected', code, message } as const;
        this._performers.settle({ kind: 'settle', ref: event.ref, outcome });
      } else {
        this.listeners.report(lost);
      }
      if (event.kind === 'received') {
        this._reader.hangUp(RECONNECTS);
        this._queue.unshift({ kind: 'dropped', code: LOST, reason: message });
      }
    }
    this._handleAll();
  }

  private readonly _performers: Performers = {
    stateChanged: (effect) => this._changeState(effect),
    fetch: (effect) => this._fetch(effect),
    abandonFetch: () => this._fetching?.abort(),
    dial: ({ transport }) => this._reader.dial(transport),
    hangUp: ({ code }) => this._reader.hangUp(code),
    send: ({ frame }) => this._reader.send(frame),
    startTimer: ({ name, after }) => this._startTimer(name, after),
    cancelTimer: ({ name }) => this._timers.get(name)?.cancel(),
    probe: () => this._probe('probed'),
    probeHttp: ({ auth }) => this._probe('answered', auth),
    deliver: ({ sub, message }) => {
      if (!this._own.has(message.id)) this._put(sub, { kind: 'message', message });
    },
    gap: ({ kind, sub, ...gap }) => this._put(sub, { kind, gap }),
    presenceChanged: ({ kind: _, sub, ...presence }) => {
      this._put(sub, { kind: 'presence', presence });
    },
    joined: (effect) => this.inboxes.get(effect.sub)?.join(effect),
    settle: ({ ref, outcome }) => {
      this._settles.get(ref)?.(outcome);
      this._settles.delete(ref);
    },
    problem: ({ code, message, topic, retryAfter }) => {
      this.listeners.report(fromCode(code, message, { topic, retryAfter }));
    },
    finished: ({ error }) => {
      if (error) {
        const { code, message, remedy, topic } = error;
        this._error = fromCode(code, message, { remedy, topic });
      }
      this.finished = true;
      this._over.abort();
      this._stopWatching?.();
      for (const inbox of this.inboxes.values()) inbox.finish(this._error);
      this.inboxes.clear();
      this.listeners.finish();
    },
  };

  // ---------------------------------------------------------------- what operations need of it

  /** A part of the client, if it loads in the time of the operation that needs it. */
  async part<Part>(loading: Promise<Part>, { timeout, signal }: Waiting): Promise<Part> {
    const part = await within(loading, signal, this.clock, this.patience(timeout));
    if (!part) throw new ConnectionFailed('A part of the client did not load in time.');
    return part;
  }

  /** The HTTP API. */
  readonly http: () => Promise<HttpApi> = lazily(async () => {
    const { HttpApi } = await import('./http_operations.js');
    return new HttpApi(this);
  });

  /** What outlives a reload of the page. */
  readonly recovery: () => Promise<Recovery> = lazily(async () => {
    const { Recovery } = await import('./recovery.js');
    return new Recovery(this);
  });

  /** Lets publishes in as the queue has room. */
  readonly turnstile: () => Promise<Turnstile> = lazily(async () => {
    const { Turnstile } = await operations();
    return new Turnstile(this);
  });

  /** Whether the connection stands, and was heard lately. */
  get standing(): boolean {
    const { pingInterval, pongTimeout } = this.options;
    return this.state === 'connected' && this._reader.idle <= pingInterval + pongTimeout;
  }

  /** Whether the connection stands, and was heard since a time of the clock. */
  heardSince(time: number): boolean {
    return this.state === 'connected' && this.clock.now() - this._reader.idle >= time;
  }

  /** A number that nothing else of this client has. */
  number(): number {
    this._numbers += 1;
    return this._numbers;
  }

  /** Milliseconds that an operation may take. */
  patience(timeout: number = this.options.operationTimeout): number {
    return checkPatience('timeout', timeout);
  }

  /** Bytes of JSON that the data of a message may have. */
  get maxPayload(): number {
    return this.welcome?.limits?.max_payload || this.options.maxPayload;
  }

  /** Whether the server answers publishes; assumed until it has said what it can do. */
  get acknowledges(): boolean {
    const { version, features } = this.welcome ?? {};
    if (!this.welcome || !this._reader.incremental) return true;
    return Boolean(version && features?.includes('ack'));
  }

  /** @throws ClosedError The client is closed. What made it fail, where it failed. */
  refuseEnded(): void {
    const { _error: cause } = this;
    if (!this._closing && !this.finished) return;
    if (!cause) throw new ClosedError();
    // An error of its own for each call: its stack leads to the caller.
    throw fromCode(cause.code, cause.message, { ...cause, cause });
  }

  /**
   * Connect, unless that was asked for before.
   *
   * @throws InvalidOption A WebSocket is wanted where there is none.
   */
  connect(): void {
    if (this._stopWatching || this.state !== 'initialized') return;
    checkPlatform(this.options, this.around);
    this._stopWatching = this.around.watch(this);
    this.feed({ kind: 'connect', opened: this.around.opened?.has(this.options.socketUrl) });
  }

  /** Settle the publishes and end. */
  async close(milliseconds: number | undefined): Promise<void> {
    const states = this.states();
    this._closing = true;
    this._drain = milliseconds;
    this.feed({ kind: milliseconds === 0 ? 'abort' : 'close' });
    for await (const _ of states);
  }

  /** Changes of state from now on, until the client has ended. */
  states(): Recent<StateChange> {
    const states = this.listeners.open('state');
    if (this.finished) states.finish();
    return states;
  }

  /** Begin a subscription. */
  add(event: Subscribe, inbox: Inbox): void {
    this.connect();
    this.inboxes.set(event.sub, inbox);
    this.feed(event);
  }

  /** End a subscription. Does nothing when it has ended. */
  remove(sub: number): void {
    if (this.inboxes.delete(sub)) this.feed({ kind: 'unsubscribe', sub });
  }

  /** Publish; the promise gets the outcome. */
  publish(event: Publish): Promise<Outcome> {
    this.rememberOwn(event.messages);
    return this.settled(event);
  }

  /** Have the session handle what it settles; the promise gets the outcome. */
  settled(event: Event & { readonly ref: number }): Promise<Outcome> {
    return new Promise((resolve) => {
      this._settles.set(event.ref, resolve);
      this.feed(event);
    });
  }

  /** Keep messages of this client from its own subscriptions, where `echo` is off. */
  rememberOwn(messages: Publish['messages']): void {
    if (this.options.echo) return;
    for (const { id } of messages) this._own.add(id);
    for (const id of this._own) {
      if (this._own.size <= OWN_IDS) break;
      this._own.delete(id);
    }
  }

  // ---------------------------------------------------------------- inside

  private _greet(frame: AuthOkFrame, at: number): void {
    const { expires_at: end, server_time: now = at } = frame;
    this.welcome = frame;
    if (this._reader.incremental) this.around.opened?.add(this.options.socketUrl);
    if (end !== undefined) this.tokens.learn(end - now);
  }

  private _probe(kind: 'probed' | 'answered', auth?: AuthFrame): void {
    const answer = (ok: boolean): void => this.feed({ kind, ok });
    operations()
      .then(({ probe }) => probe(this, auth))
      .then(answer, () => answer(false));
  }

  private _startTimer(name: TimerName, after: number): void {
    const wait = name === 'drain' ? (this._drain ?? after) : after;
    const fire = (): void => this.feed({ kind: 'timerFired', name, idle: this._reader.idle });
    this._timers.get(name)?.cancel();
    this._timers.set(name, this.clock.callLater(wait, fire));
  }

  private _fetch({ id: fetch, reason, attempt }: Fetch): void {
    this._fetching = new AbortController();
    const { signal } = this._fetching;
    this.tokens.fetch(reason, attempt, signal).then(
      ({ value, expiresAt }) => {
        this.tokenFailure = undefined;
        const expiresIn = expiresAt && Math.max(0, expiresAt - this.clock.wallMs());
        this.feed({ kind: 'token', fetch, value, expiresIn });
      },
      (error: unknown) => {
        if (signal.aborted) return;
        const refused = error instanceof AuthRefused;
        const message = tokenProblem(error);
        if (!refused) {
          this.tokenFailure = fromCode('token_unavailable', message, { cause: error });
          this.listeners.report(this.tokenFailure);
        }
        this.feed({ kind: 'tokenFailed', fetch, refused, message });
      },
    );
  }

  private _put(sub: number, event: SubscriptionEvent): void {
    const inbox = this.inboxes.get(sub);
    const place = event.kind === 'presence' ? inbox?.presence : inbox;
    if (!place) return;
    place.put(event);
    if (!place.touched) this._touched.push([place, sub]);
    place.touched = true;
  }

  private _settle(): void {
    for (let next = this._touched.shift(); next; next = this._touched.shift()) {
      const [inbox, sub] = next;
      inbox.settle();
      if (inbox.full) this._reader.giveWay();
      if (inbox.finished) this.remove(sub);
    }
  }

  private _changeState({ from: before, public: to, ...about }: StateChanged): void {
    const from = publicState(before);
    if (from === to) return;
    const { code, reason = '', retryIn, attempt } = about;
    const change = { from, to, code, reason, retryIn, attempt };
    this.state = to;
    if (from === 'connected' || from === 'initialized') this.apartSince = this.clock.now();
    if (to === 'connected') this.lastFailure = undefined;
    else if (code !== undefined || reason) this.lastFailure = change;
    this.options.logger.debug?.(`${from} -> ${to} ${code ?? ''}`);
    this.listeners.tell('state', change);
  }
}
