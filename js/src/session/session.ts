/**
 * The session: a pure step function, events in, effects out.
 *
 * What the whole SDK decides, it decides here: `lifecycle` follows the table, `joins` keeps
 * subscriptions, `outbox` keeps publishes; this is where each kind of event finds its way to them.
 */

import { FINAL, TIMERS } from '../generated/lifecycle.js';
import type { ErrorFrame } from '../generated/wire.js';
import { actionOf } from './causes.js';
import type { Effect } from './effects.js';
import type {
  Dropped,
  Event,
  Opened,
  Publish,
  Received,
  Subscribe,
  TimerFired,
  Token,
  TokenFailed,
  Unsubscribe,
  UpdatePresence,
  Woke,
} from './events.js';
import { Lifecycle } from './lifecycle.js';

/** One client's life, from `Connect` to `Finished`. */
export class Session extends Lifecycle {
  // ---------------------------------------------------------------- what others may ask

  /** Position of each topic of a subscription, for `Subscribe.after` at another time. */
  positions(sub: number): ReadonlyMap<string, number> {
    return this.joins.positions(sub);
  }

  // ---------------------------------------------------------------- events in, effects out

  /**
   * Take one event; return the effects, to be performed in order.
   *
   * Nothing that comes from the network makes it throw: what has no meaning now is ignored.
   */
  handle(event: Event): Effect[] {
    const out: Effect[] = [];
    this._out = out;
    if (event.kind === 'received' && event.frame.type === 'message') {
      if (this._online) this.joins.message(event.frame.message, out);
    } else {
      this._dispatch(event);
      if (this._draining && !this.outbox.size && !FINAL.has(this.state)) {
        this._fire('drained', event);
      }
    }
    this._startDue();
    return out;
  }

  /** Start the timers that queue and subscriptions ask for. */
  private _startDue(): void {
    const pace = this.outbox.takePace();
    if (pace !== undefined) this._start('pace', pace);
    const due = this.joins.takeDue();
    if (due !== undefined) this._start('rejoin', due);
  }

  private _dispatch(event: Event): void {
    switch (event.kind) {
      case 'connect':
      case 'close':
      case 'abort':
      case 'probed':
        this._fire(event.kind, event);
        break;
      case 'woke':
        this._woke(event);
        break;
      case 'token':
      case 'tokenFailed':
        this._token(event);
        break;
      case 'opened':
        this._opened(event);
        break;
      case 'dropped':
        this._dropped(event);
        break;
      case 'received':
        this._received(event);
        break;
      case 'timerFired':
        this._timerFired(event);
        break;
      case 'subscribe':
        this._subscribe(event);
        break;
      case 'unsubscribe':
        this._unsubscribe(event);
        break;
      case 'publish':
        this._publish(event);
        break;
      case 'expire':
        this.outbox.expire(event.ref, this._out);
        break;
      case 'updatePresence':
        this._updatePresence(event);
        break;
    }
  }

  // ---------------------------------------------------------------- each kind of event

  private _token(event: Token | TokenFailed): void {
    if (this._credentials.answered(event.fetch)) {
      this._stop('fetch');
      this._fire(event.kind === 'token' ? 'token' : 'token_failed', event);
    }
  }

  private _opened(event: Opened): void {
    if (this._linked) {
      this._incremental = event.incremental;
      this._fire('opened', event);
    }
  }

  private _dropped(event: Dropped): void {
    if (this._linked) {
      this._linked = false;
      this._fire('dropped', event);
    }
  }

  private _woke(event: Woke): void {
    const { life, renewable } = this._credentials;
    if (life !== undefined && renewable && !event.rested) {
      this.forgetToken(event); // nobody knows how long the sleep was
    }
    this._fire('woke', event);
  }

  private _timerFired(event: TimerFired): void {
    const { name } = event;
    if (!this._timers.delete(name)) return;
    if (name === 'pace') {
      this.outbox.paced(this._out);
    } else if (name === 'rejoin') {
      this.joins.rejoin(this._out);
    } else {
      this._overdue = this._overdue || name === 'suspend';
      this._fire(TIMERS[name], event);
    }
  }

  private _subscribe(event: Subscribe): void {
    if (this._draining || FINAL.has(this.state)) {
      const message = 'The client is closed.';
      const denied = event.topics.map((topic) => ({ topic, code: 'closed', message }));
      this._out.push({ kind: 'joined', sub: event.sub, topics: [], denied });
    } else {
      this.joins.subscribe(event, this._out);
    }
  }

  private _unsubscribe(event: Unsubscribe): void {
    this.joins.unsubscribe(event.sub, this._out);
    this._own.keep((topic) => this.joins.wants(topic));
  }

  private _publish(event: Publish): void {
    if (this._draining || FINAL.has(this.state)) {
      const message = 'The client is closed.';
      const outcome = { kind: 'rejected', code: 'closed', message } as const;
      this._out.push({ kind: 'settle', ref: event.ref, outcome });
    } else {
      this.outbox.publish(event, this._out);
    }
  }

  private _updatePresence(event: UpdatePresence): void {
    if (FINAL.has(this.state)) return;
    this._own.update(event.topic, event.data);
    if (this._online) this._sendPresence(event.topic, { ...event.data });
  }

  private _received(event: Received): void {
    const { frame } = event;
    switch (frame.type) {
      case 'auth.ok':
      case 'auth.error':
      case 'auth.expiring':
      case 'pong':
        this._fire(frame.type, event);
        break;
      case 'error':
        this._error(frame, event);
        break;
      case 'subscribed':
        if (this._online) this.joins.subscribed(frame, event.at, this._out);
        break;
      case 'published':
        if (this._online) this.outbox.published(frame, this._out);
        break;
      case 'presence.snapshot':
        if (this._online) this.joins.snapshot(frame, this._out);
        break;
      default: // `unsubscribed` says nothing that is not known
    }
  }

  private _error(frame: ErrorFrame, event: Received): void {
    const { code, message, topic } = frame;
    if (this.state === 'authenticating' && actionOf(code) !== 'retry') {
      this._fire('auth.error', event);
    } else if (!this._online) {
      if (this._linked) this._out.push({ kind: 'problem', code, message, topic });
    } else if (
      !this.outbox.failed(frame, this._out) &&
      !this.joins.failed(frame, (about) => this.outbox.mayBeAbout(about), this._out)
    ) {
      if (code === 'rate_limited') this.outbox.pause(frame.retry_after_ms);
      this._out.push({ kind: 'problem', code, message, topic });
    }
  }
}
