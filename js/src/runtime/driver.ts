/**
 * The driver: performs what the session decides, and tells it what happens.
 *
 * Events are handled one at a time; what is fed while one is being handled waits for its turn, so a
 * session never sees two at once. User code never runs here.
 */

import type { Clock, TimerHandle } from '../clock.js';
import { AuthRefused, fromCode, PubSubError } from '../errors.js';
import { PUBLIC } from '../generated/lifecycle.js';
import type { AuthOkFrame, Envelope, Limits, ServerFrame } from '../generated/wire.js';
import type { Effect, Fetch, Finished, Joined, Outcome, StateChanged } from '../session/effects.js';
import type { Event, Publish, TimerName } from '../session/events.js';
import { type Peer, readPeer } from '../session/peer.js';
import type { Session } from '../session/session.js';
import type { ClientOptions } from '../settings/options.js';
import type { StateChange, StateName } from '../values.js';
import { denialError, type Inbox } from './inbox.js';
import { type DialTransport, Reader } from './reader.js';
import { watchPlatform } from './surroundings.js';
import { nameOf, type TokenSource } from './tokens.js';

/** Milliseconds between two looks at the clocks (LIFE-5). */
const WATCH_EVERY = 5_000;

/** Milliseconds by which a timer is late where the machine has slept. */
const SLEPT = 10_000;

/** Ids of own messages that are remembered with `echo: false`: what may be on its way back. */
const OWN_IDS = 10_000;

/** Who is told of what no call asked for. */
export interface Listeners {
  state(change: StateChange): void;
  error(error: unknown): void;
  welcome(frame: AuthOkFrame): void;
  settled(): void;
  finished(): void;
}

/** Where the deliveries of a subscription go: messages and gaps; presence. */
export interface Place {
  readonly inbox: Inbox;
  readonly presence: Inbox;
}

/** Runs one session. */
export class Driver {
  state: StateName = 'initialized';
  lastChange: StateChange | undefined;
  finished = false;
  error: PubSubError | undefined;
  clientId: string | undefined;
  limits: Limits = {};
  peer: Peer | undefined;
  private readonly _places = new Map<number, Place>();
  private readonly _queue: Event[] = [];
  private _busy = false;
  private readonly _timers = new Map<TimerName, TimerHandle>();
  private _drain: number | undefined;
  private readonly _fetches = new Map<number, AbortController>();
  private readonly _settles = new Map<number, (outcome: Outcome) => void>();
  private readonly _reader: Reader;
  private _waiters: (() => void)[] = [];
  private _watch: TimerHandle | undefined;
  private _unwatch: (() => void) | undefined;
  private _wall = 0;
  private readonly _own = new Set<string>();

  /**
   * @param session Decides.
   * @param options What the client is set to.
   * @param clock Every timer and both readings of time.
   * @param _tokens Asks the program for tokens.
   * @param dial Makes a transport that is not open yet.
   * @param _listeners Told of what no call asked for.
   */
  constructor(
    readonly session: Session,
    readonly options: ClientOptions,
    readonly clock: Clock,
    private readonly _tokens: TokenSource,
    dial: DialTransport,
    private readonly _listeners: Listeners,
  ) {
    this._reader = new Reader(
      {
        receive: (frame, at) => this._receive(frame, at),
        opened: (incremental) => this.feed({ kind: 'opened', incremental }),
        dropped: (end) => this.feed({ kind: 'dropped', ...end }),
      },
      dial,
      clock,
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
    if (frame.type === 'auth.ok') this._welcome(frame);
    this._queue.push({ kind: 'received', frame, at });
    if (!this._busy) this._runQueue();
  }

  private _welcome(frame: AuthOkFrame): void {
    this.clientId = frame.client_id;
    this.limits = frame.limits ?? {};
    this.peer = readPeer(frame, this._reader.incremental);
    if (frame.expires_at !== undefined) {
      this._tokens.learn(frame.expires_at - (frame.server_time ?? this.clock.wallMs()));
    }
    this._listeners.welcome(frame);
  }

  private _perform(produced: readonly Effect[]): void {
    let run: Envelope[] = []; // messages of one subscription in a row: a replay
    let runSub = 0;
    for (const effect of produced) {
      if (effect.kind === 'deliver') {
        if (run.length && effect.sub !== runSub) {
          this._deliver(runSub, run);
          run = [];
        }
        runSub = effect.sub;
        run.push(effect.message);
        continue;
      }
      if (run.length) {
        this._deliver(runSub, run);
        run = [];
      }
      this._performOne(effect);
    }
    if (run.length) this._deliver(runSub, run);
  }

  private _performOne(effect: Exclude<Effect, { kind: 'deliver' }>): void {
    switch (effect.kind) {
      case 'stateChanged':
        this._changeState(effect);
        break;
      case 'fetch':
        this._fetch(effect);
        break;
      case 'abandonFetch':
        this._abandonFetch(effect.id);
        break;
      case 'dial':
        this._reader.dial(effect.transport);
        break;
      case 'hangUp':
        this._reader.hangUp(effect.code);
        break;
      case 'send':
        this._reader.send(effect.frame);
        break;
      case 'startTimer':
        this._startTimer(effect.name, effect.after);
        break;
      case 'cancelTimer':
        this._cancelTimer(effect.name);
        break;
      case 'probe':
        this._probe();
        break;
      case 'gap': {
        const { sub, topic, from, to, missed, reason } = effect;
        const gap = { topic, from, to, missed, reason };
        this._places.get(sub)?.inbox.putOther({ kind: 'gap', gap });
        break;
      }
      case 'joined':
        this._join(effect);
        break;
      case 'presenceChanged': {
        const { sub, topic, members, change, member } = effect;
        const presence = { topic, members, change, member };
        this._places.get(sub)?.presence.putOther({ kind: 'presence', presence });
        break;
      }
      case 'settle':
        this._settles.get(effect.ref)?.(effect.outcome);
        this._settles.delete(effect.ref);
        this._listeners.settled();
        break;
      case 'problem': {
        const { code, message, topic } = effect;
        this._listeners.error(fromCode(code, message, { topic }));
        break;
      }
      case 'finished':
        this._finish(effect);
        break;
    }
  }

  // ---------------------------------------------------------------- what others need of it

  /** Route what the session delivers to a subscription. */
  add(sub: number, place: Place): void {
    this._places.set(sub, place);
  }

  /** End a subscription. Does nothing when it has ended. */
  remove(sub: number): void {
    if (this._places.delete(sub) && !this.finished) this.feed({ kind: 'unsubscribe', sub });
  }

  /** Publish; the promise gets the outcome. */
  begin(event: Publish): Promise<Outcome> {
    return new Promise((resolve) => {
      this._settles.set(event.ref, resolve);
      this.feed(event);
    });
  }

  /** Keep messages of this client from its own subscriptions, where `echo` is off. */
  rememberOwn(ids: readonly string[]): void {
    if (this.options.echo) return;
    for (const id of ids) this._own.add(id);
    for (const id of this._own) {
      if (this._own.size <= OWN_IDS) break;
      this._own.delete(id);
    }
  }

  /**
   * Wait until a condition holds; it is asked when the state changes or the server answers.
   *
   * @returns Whether it holds; false also where the client has ended or the time has passed first.
   */
  async until(
    condition: () => boolean,
    milliseconds?: number,
    signal?: AbortSignal,
  ): Promise<boolean> {
    let passed = false;
    const notify = (): void => this._notify();
    const timer =
      milliseconds === undefined
        ? undefined
        : this.clock.callLater(milliseconds, () => {
            passed = true;
            notify();
          });
    signal?.addEventListener('abort', notify);
    try {
      while (true) {
        signal?.throwIfAborted();
        if (condition()) return true;
        if (passed || this.finished) return false;
        await new Promise<void>((resolve) => this._waiters.push(resolve));
      }
    } finally {
      timer?.cancel();
      signal?.removeEventListener('abort', notify);
    }
  }

  /** Connect, unless that was asked for before. */
  connect(): void {
    if (this.state !== 'initialized' || this._watch) return;
    this._lookAtClocks();
    this._unwatch = watchPlatform((certain) => this._wake(certain));
    this.feed({ kind: 'connect' });
  }

  /** Settle the publishes and end. */
  async close(milliseconds: number | undefined): Promise<void> {
    if (!this.finished) {
      this._drain = milliseconds;
      this.feed({ kind: milliseconds === 0 ? 'abort' : 'close' });
    }
    await this.until(() => this.finished);
  }

  private _notify(): void {
    const waiters = this._waiters;
    this._waiters = [];
    for (const wake of waiters) wake();
  }

  private _probe(): void {
    const answer = (ok: boolean): void => this.feed({ kind: 'probed', ok });
    this._reader.probe(this.options.openTimeout).then(answer, () => answer(false));
  }

  // ---------------------------------------------------------------- tokens

  private _fetch({ id, reason, attempt }: Fetch): void {
    const { fixed } = this._tokens;
    if (fixed) {
      this.feed({ kind: 'token', fetch: id, value: fixed.value });
      return;
    }
    const abort = new AbortController();
    this._fetches.set(id, abort);
    this._tokens.fetch(reason, attempt, abort.signal).then(
      ({ value, expiresAt }) => {
        if (!this._fetches.delete(id)) return;
        const expiresIn =
          expiresAt === undefined ? undefined : Math.max(0, expiresAt - this.clock.wallMs());
        this.feed({ kind: 'token', fetch: id, value, expiresIn });
      },
      (error: unknown) => {
        if (!this._fetches.delete(id)) return;
        const refused = error instanceof AuthRefused;
        // What a stranger's error says may hold a secret; its class says enough.
        const message = error instanceof PubSubError ? error.message : nameOf(error);
        if (!refused) {
          this._listeners.error(
            fromCode('token_unavailable', `getToken threw ${message}.`, { cause: error }),
          );
        }
        this.feed({ kind: 'tokenFailed', fetch: id, refused, message });
      },
    );
  }

  private _abandonFetch(id: number): void {
    const abort = this._fetches.get(id);
    this._fetches.delete(id);
    abort?.abort();
  }

  // ---------------------------------------------------------------- timers

  private _startTimer(name: TimerName, after: number): void {
    this._timers.get(name)?.cancel();
    const milliseconds = name === 'drain' ? (this._drain ?? after) : after;
    const fire = (): void => {
      this._timers.delete(name);
      this.feed({ kind: 'timerFired', name, idle: this._reader.idle });
    };
    this._timers.set(name, this.clock.callLater(milliseconds, fire));
  }

  private _cancelTimer(name: TimerName): void {
    this._timers.get(name)?.cancel();
    this._timers.delete(name);
  }

  /** A timer that is late by the wall clock tells that the machine has slept. */
  private _lookAtClocks(): void {
    const wall = this.clock.wallMs();
    const late = this._wall ? wall - this._wall - WATCH_EVERY : 0;
    this._wall = wall;
    this._watch = this.clock.callLater(WATCH_EVERY, () => this._lookAtClocks(), true);
    // A throttled tab runs its timers once a minute, and has not slept: its socket was heard.
    if (late > SLEPT && this._reader.idle > SLEPT) this.feed({ kind: 'woke' });
  }

  /** Try now what waits; a connection that was heard lately is left alone, if it can be trusted. */
  private _wake(certain: boolean): void {
    const { pingInterval, pongTimeout } = this.options;
    const stands = this.state === 'connected' && this._reader.idle <= pingInterval + pongTimeout;
    if (certain || !stands) this.feed({ kind: 'woke' });
  }

  // ---------------------------------------------------------------- to the subscriptions

  private _deliver(sub: number, messages: readonly Envelope[]): void {
    const inbox = this._places.get(sub)?.inbox;
    if (!inbox) return;
    const others = this._own.size ? messages.filter(({ id }) => !this._own.has(id)) : messages;
    const [first] = others;
    if (others.length > 1) inbox.putReplay(others);
    else if (first) inbox.put(first);
    if (inbox.full) this._reader.giveWay();
  }

  private _join({ sub, topics, denied }: Joined): void {
    const place = this._places.get(sub);
    if (!place) return;
    for (const inbox of new Set([place.inbox, place.presence])) {
      inbox.join(topics, denied);
      if (!topics.length) inbox.finish(denialError(denied, inbox.topics));
    }
    if (!topics.length) this._places.delete(sub);
    this._notify();
  }

  // ---------------------------------------------------------------- to the calls and listeners

  private _changeState(effect: StateChanged): void {
    const from = PUBLIC[effect.from];
    const to = effect.public;
    if (from === to) return;
    const { code, reason, retryIn, attempt } = effect;
    this.state = to;
    this.lastChange = { from, to, code, reason: reason ?? '', retryIn, attempt };
    this.options.logger.debug?.(`${from} -> ${to} ${code ?? ''}`);
    this._listeners.state(this.lastChange);
    this._notify();
  }

  private _finish({ error: said }: Finished): void {
    this.finished = true;
    if (said) {
      const { code, message, remedy, topic } = said;
      this.error = fromCode(code, message, { remedy, topic });
    }
    for (const timer of this._timers.values()) timer.cancel();
    this._timers.clear();
    this._watch?.cancel();
    this._unwatch?.();
    for (const abort of this._fetches.values()) abort.abort();
    this._fetches.clear();
    for (const { inbox, presence } of this._places.values()) {
      inbox.finish(this.error);
      presence.finish(this.error);
    }
    this._places.clear();
    this._listeners.finished();
    this._notify();
  }
}
