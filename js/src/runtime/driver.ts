/**
 * The driver: performs what the session decides, and tells it what happens.
 *
 * Events are handled one at a time; what is fed while one is being handled waits for its turn, so a
 * session never sees two at once. User code never runs here.
 */

import type { TimerHandle } from '../clock.js';
import {
  AuthRefused,
  ClosedError,
  type CodedDetails,
  ConnectionFailed,
  fromCode,
  PubSubError,
} from '../errors.js';
import { PUBLIC } from '../generated/lifecycle.js';
import type { AuthOkFrame, Denial, Envelope, ServerFrame } from '../generated/wire.js';
import type {
  Effect,
  Fetch,
  Finished,
  Joined,
  Outcome,
  StateChanged,
  TransportName,
} from '../session/effects.js';
import type { Event, Publish, TimerName } from '../session/events.js';
import { Session } from '../session/session.js';
import { checkTime } from '../settings/checks.js';
import { type ClientOptions, sessionOptionsOf } from '../settings/options.js';
import type { StateChange, StateName } from '../values.js';
import { Listeners } from './handlers.js';
import type { HttpApi } from './http_operations.js';
import type { Inbox } from './inbox.js';
import { Reader } from './reader.js';
import type { Recent } from './stream.js';
import { load, type Surroundings, watch } from './surroundings.js';
import { nameOf, TokenSource } from './tokens.js';
import type { Turnstile } from './turnstile.js';
import { type Waiting, within } from './waiting.js';

/** Ids of own messages that are remembered with `echo: false`: what may be on its way back. */
const OWN_IDS = 10_000;

const NOTHING = {
  code: 'forbidden',
  message: 'The server granted none of the topics.',
  topic: undefined,
};

/** Where the deliveries of a subscription go: messages and gaps; presence. */
export interface Place {
  readonly inbox: Inbox;
  readonly presence: Inbox;
}

type Performers = {
  readonly [K in Exclude<Effect['kind'], 'deliver'>]: (
    effect: Extract<Effect, { readonly kind: K }>,
  ) => void;
};

/** Runs one session: what a client is, once it is used. */
export class Driver {
  readonly listeners: Listeners;
  readonly tokens: TokenSource;
  readonly session: Session;
  state: StateName = 'initialized';
  finished = false;
  /** What the server said of itself; undefined before it was ever connected. */
  welcome: AuthOkFrame | undefined;
  /** Called whenever a publish was settled, and at the end. */
  onSettle: () => void = () => {};
  private _error: PubSubError | undefined;
  private _closing = false;
  private _lastFailure: StateChange | undefined;
  private readonly _places = new Map<number, Place>();
  private readonly _queue: Event[] = [];
  private _busy = false;
  private readonly _timers = new Map<TimerName, TimerHandle>();
  private _drain: number | undefined;
  private _fetching: AbortController | undefined;
  private readonly _settles = new Map<number, (outcome: Outcome) => void>();
  private readonly _reader: Reader;
  private _unwatch: (() => void) | undefined;
  private readonly _own = new Set<string>();
  private _numbers = 0;
  private _http: Promise<HttpApi> | undefined;
  private _turnstile: Promise<Turnstile> | undefined;

  /**
   * @param options What the client is set to.
   * @param around Clock, randomness, transports.
   */
  constructor(
    readonly options: ClientOptions,
    readonly around: Surroundings,
  ) {
    this.listeners = new Listeners(options.logger);
    this.tokens = new TokenSource(options, around.clock);
    this.session = new Session(sessionOptionsOf(options), around.random);
    this._reader = new Reader(
      {
        receive: (frame, at) => this._receive(frame, at),
        opened: (incremental) => this.feed({ kind: 'opened', incremental }),
        dropped: (end) => this.feed({ kind: 'dropped', ...end }),
      },
      (name: TransportName) => around.dial(name, options),
      around.clock,
      options.logger,
    );
  }

  // ---------------------------------------------------------------- events in, effects out

  /** Have the session handle an event, now or after the one it is at. */
  feed(event: Event): void {
    this._queue.push(event);
    if (this._busy) return;
    this._runQueue();
    this._reader.flush();
  }

  private _runQueue(): void {
    this._busy = true;
    try {
      for (let event = this._queue.shift(); event; event = this._queue.shift()) {
        this._perform(this.session.handle(event));
      }
    } finally {
      this._busy = false;
    }
  }

  private _receive(frame: ServerFrame, at: number): void {
    if (frame.type === 'auth.ok') {
      const { expires_at: end, server_time: now = at } = frame;
      this.welcome = frame;
      if (end !== undefined) this.tokens.learn(end - now);
    }
    this._queue.push({ kind: 'received', frame, at });
    if (!this._busy) this._runQueue();
  }

  private _perform(effects: readonly Effect[]): void {
    for (let n = 0; n < effects.length; ) {
      const effect = effects[n++] as Effect;
      if (effect.kind !== 'deliver') {
        (this._performers[effect.kind] as (effect: Effect) => void)(effect);
        continue;
      }
      const { sub, message } = effect;
      const run = [message]; // messages of one subscription in a row: a replay
      for (let next = effects[n]; next?.kind === 'deliver' && next.sub === sub; next = effects[n]) {
        run.push(next.message);
        n += 1;
      }
      this._deliver(sub, run);
    }
  }

  private readonly _performers: Performers = {
    stateChanged: (effect) => this._changeState(effect),
    fetch: (effect) => this._fetch(effect),
    abandonFetch: () => this._fetching?.abort(),
    dial: ({ transport }) => this._reader.dial(transport),
    hangUp: ({ code }) => this._reader.hangUp(code),
    send: ({ frame }) => this._reader.send(frame),
    startTimer: ({ name, after }) => {
      this._timers.get(name)?.cancel();
      const fire = (): void => {
        this._timers.delete(name);
        this.feed({ kind: 'timerFired', name, idle: this._reader.idle });
      };
      const wait = name === 'drain' ? (this._drain ?? after) : after;
      this._timers.set(name, this.around.clock.callLater(wait, fire));
    },
    cancelTimer: ({ name }) => {
      this._timers.get(name)?.cancel();
      this._timers.delete(name);
    },
    probe: () => {
      const answer = (ok: boolean): void => this.feed({ kind: 'probed', ok });
      this._reader.probe(this.options.openTimeout).then(answer, () => answer(false));
    },
    gap: ({ kind, sub, ...gap }) => this._places.get(sub)?.inbox.putOther({ kind, gap }),
    joined: (effect) => this._join(effect),
    presenceChanged: ({ kind, sub, ...presence }) => {
      this._places.get(sub)?.presence.putOther({ kind: 'presence', presence });
    },
    settle: ({ ref, outcome }) => {
      this._settles.get(ref)?.(outcome);
      this._settles.delete(ref);
      this.onSettle();
    },
    problem: ({ code, message, topic }) => {
      this.listeners.report(fromCode(code, message, { topic }));
    },
    finished: (effect) => this._finish(effect),
  };

  // ---------------------------------------------------------------- what operations need of it

  /** A number that nothing else of this client has. */
  number(): number {
    this._numbers += 1;
    return this._numbers;
  }

  /** Milliseconds that an operation may take. */
  patience(timeout: number | undefined): number {
    return timeout === undefined ? this.options.operationTimeout : checkTime('timeout', timeout, 0);
  }

  /** Bytes of JSON that the data of a message may have. */
  get maxPayload(): number {
    return this.welcome?.limits?.max_payload || this.options.maxPayload;
  }

  /** @throws ClosedError The client is closed. What made it fail, where it failed. */
  refuseEnded(): void {
    if (this._closing) throw new ClosedError();
    if (this.finished) throw this._error ?? new ClosedError();
  }

  /** Connect, unless that was asked for before. */
  connect(): void {
    if (this.state !== 'initialized' || this._unwatch) return;
    this._unwatch = watch(this.around.clock, (certain) => this._wake(certain));
    this.feed({ kind: 'connect' });
  }

  /** Wait until the client is connected. */
  async connected({ timeout, signal }: Waiting, about: CodedDetails = {}): Promise<void> {
    const { clock } = this.around;
    const patience = this.patience(timeout);
    const end = clock.now() + patience;
    const states = this.states();
    signal?.throwIfAborted();
    this.connect();
    while (this.state !== 'connected') {
      this.refuseEnded();
      if (!(await within(states.next(), signal, clock, end - clock.now()))) {
        const why = reasonOf(this._lastFailure, this.state);
        throw new ConnectionFailed(`Not connected within ${patience} ms: ${why}`, about);
      }
    }
    states.return();
  }

  /** Settle the publishes and end. */
  async close(milliseconds: number | undefined): Promise<void> {
    const states = this.states();
    this._closing = true;
    if (!this.finished) {
      this._drain = milliseconds;
      this.feed({ kind: milliseconds === 0 ? 'abort' : 'close' });
    }
    for await (const _ of states);
  }

  /** Changes of state from now on, until the client has ended. */
  states(): Recent<StateChange> {
    const states = this.listeners.open('state');
    if (this.finished) states.finish();
    return states;
  }

  /** Begin a subscription. */
  add(event: Extract<Event, { kind: 'subscribe' }>, place: Place): void {
    this._places.set(event.sub, place);
    this.connect();
    this.feed(event);
  }

  /** End a subscription. Does nothing when it has ended. */
  remove(sub: number): void {
    if (this._places.delete(sub) && !this.finished) this.feed({ kind: 'unsubscribe', sub });
  }

  /** Publish; the promise gets the outcome. */
  publish(event: Publish): Promise<Outcome> {
    this.rememberOwn(event.messages);
    return new Promise((resolve) => {
      this._settles.set(event.ref, resolve);
      this.feed(event);
    });
  }

  /** Keep messages of this client from its own subscriptions, where `echo` is off. */
  rememberOwn(messages: Publish['messages']): void {
    if (this.options.echo) return;
    for (const { id } of messages) this._own.add(id ?? '');
    for (const id of this._own) {
      if (this._own.size <= OWN_IDS) break;
      this._own.delete(id);
    }
  }

  /** The HTTP API, loaded at its first use. */
  http(): Promise<HttpApi> {
    this._http ??= load(import('./http_operations.js')).then(({ HttpApi }) => new HttpApi(this));
    this._http.catch(() => {
      this._http = undefined;
    });
    return this._http;
  }

  /** Lets publishes in as the queue has room. */
  turnstile(): Promise<Turnstile> {
    this._turnstile ??= load(import('./turnstile.js')).then(({ Turnstile }) => new Turnstile(this));
    return this._turnstile;
  }

  // ---------------------------------------------------------------- inside

  /** Try now what waits; a connection that was heard lately is left alone, if it can be trusted. */
  private _wake(certain: boolean): void {
    const { pingInterval, pongTimeout } = this.options;
    const stands = this.state === 'connected' && this._reader.idle <= pingInterval + pongTimeout;
    if (certain || !stands) this.feed({ kind: 'woke' });
  }

  private _fetch({ id: fetch, reason, attempt }: Fetch): void {
    this._fetching = new AbortController();
    const { signal } = this._fetching;
    this.tokens.fetch(reason, attempt, signal).then(
      ({ value, expiresAt }) => {
        const expiresIn = expiresAt && Math.max(0, expiresAt - this.around.clock.wallMs());
        this.feed({ kind: 'token', fetch, value, expiresIn });
      },
      (error: unknown) => {
        if (signal.aborted) return;
        const refused = error instanceof AuthRefused;
        // What a stranger's error says may hold a secret; its class says enough.
        const message = error instanceof PubSubError ? error.message : nameOf(error);
        if (!refused) {
          const said = `getToken threw ${message}.`;
          this.listeners.report(fromCode('token_unavailable', said, { cause: error }));
        }
        this.feed({ kind: 'tokenFailed', fetch, refused, message });
      },
    );
  }

  private _deliver(sub: number, messages: readonly Envelope[]): void {
    const inbox = this._places.get(sub)?.inbox;
    const others = this._own.size ? messages.filter(({ id }) => !this._own.has(id)) : messages;
    inbox?.put(others);
    if (inbox?.full) this._reader.giveWay();
  }

  private _join({ sub, topics, denied }: Joined): void {
    const place = this._places.get(sub);
    if (!place) return;
    place.inbox.denied = denied;
    if (topics.length) {
      place.inbox.answer();
    } else {
      this._end(place, denialError(denied, place.inbox.topics));
      this._places.delete(sub);
    }
  }

  private _end({ inbox, presence }: Place, error: PubSubError | undefined): void {
    inbox.finish(error);
    presence.finish(error);
  }

  private _changeState({ kind, from: before, to: _, public: to, ...about }: StateChanged): void {
    const from = PUBLIC[before];
    if (from === to) return;
    const change = { from, to, ...about, reason: about.reason ?? '' };
    this.state = to;
    if (to === 'connected') this._lastFailure = undefined;
    else if (change.code !== undefined || change.reason) this._lastFailure = change;
    this.options.logger.debug?.(`${from} -> ${to} ${change.code ?? ''}`);
    this.listeners.tell('state', change);
  }

  private _finish({ error }: Finished): void {
    this.finished = true;
    if (error) this._error = fromCode(error.code, error.message, error);
    this._unwatch?.();
    this._fetching?.abort();
    for (const place of this._places.values()) this._end(place, this._error);
    this._places.clear();
    this.listeners.finish();
    this.onSettle();
  }
}

/** Why a client is not connected, in words. */
function reasonOf(failure: StateChange | undefined, state: StateName): string {
  if (!failure) return `nothing failed yet, the state is ${state}.`;
  const said = failure.reason.replace(/\.$/, '') || `the state is ${failure.to}`;
  return failure.code === undefined ? `${said}.` : `${said} (${failure.code}).`;
}

/** The error of a subscription of which nothing was granted. */
function denialError(denied: readonly Denial[], topics: readonly string[]): PubSubError {
  const names = denied.slice(0, 5).map(({ topic }) => topic);
  const [{ code, message, topic } = NOTHING] = denied;
  return fromCode(code, message || `Refused: ${names.join(', ')}.`, { topic: topic ?? topics[0] });
}
