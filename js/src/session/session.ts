/**
 * The session: a pure step function, events in, effects out.
 *
 * What the whole SDK decides, it decides here: `lifecycle` follows the table, `joins` keeps
 * subscriptions, `outbox` keeps publishes; this is where each kind of event finds its way to them.
 */

import {
  type Action,
  FINAL,
  type Event as Name,
  publicState,
  type Steps,
} from '../generated/lifecycle.js';
import { actionOf, causeOf, endsConnection } from './causes.js';
import type { Effect } from './effects.js';
import type { Event, Received, TimerFired } from './events.js';
import { Lifecycle } from './lifecycle.js';
import { type PartName, type PartsToEquip, partFor } from './parts.js';
import { ROWS, type Row } from './table.js';

/** How long the timers are that the table starts. */
const AFTER = {
  open: 'openTimeout',
  ping: 'pingInterval',
  pong: 'pongTimeout',
  stable: 'stableAfter',
} as const;

/** One client's life, from `Connect` to `Finished`. */
export class Session extends Lifecycle {
  private readonly _steps: Steps<Event> = this;

  // ---------------------------------------------------------------- parts

  /** The part that an event cannot be handled without, if it has to be equipped first. */
  missing(event: Event): PartName | undefined {
    const part = partFor(event);
    return part && !this._parts[part] ? part : undefined;
  }

  /** Take parts that are loaded where they are needed. */
  equip({ plain: Plain, presence: Presence, rare: Rare }: PartsToEquip): void {
    if (Rare) this._parts.rare = new Rare(this);
    if (Plain) this._parts.plain = new Plain(this);
    if (Presence) this._parts.presence = new Presence(this);
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
      if (this._peer) this.joins.message(event.frame.message);
    } else {
      this._dispatch(event);
      if (this._draining && !this.outbox.size && !FINAL.has(this.state)) {
        this._fire('drained', event);
      }
    }
    this._startDue();
    return out;
  }

  private _dispatch(event: Event): void {
    const ended = this._draining || FINAL.has(this.state);
    const closed = { code: 'closed', message: 'The client is closed.' };
    switch (event.kind) {
      case 'connect':
        this._hasOpened ||= !!event.opened;
        this._fire(event.kind, event);
        this._hurry(event);
        break;
      case 'answered':
        this._asking = false;
        this._answered = event.ok;
        if (!event.ok) this._failures = 0;
        this._fire(event.kind, event);
        break;
      case 'woke':
        if (this._life !== undefined && this._options.renewable && !event.rested) {
          this.forgetToken(event); // nobody knows how long the sleep was
        }
        this._fire(event.kind, event);
        break;
      case 'token':
      case 'tokenFailed':
        if (event.fetch === this._call) {
          this._call = 0;
          this._stop('fetch');
          this._fire(event.kind, event);
        }
        break;
      case 'opened':
      case 'dropped':
        if (this._linked) {
          if (event.kind === 'opened') this._incremental = event.incremental;
          else this._linked = false;
          this._fire(event.kind, event);
        }
        break;
      case 'received':
        this._received(event);
        break;
      case 'timerFired':
        if (this._timers.delete(event.name)) this._timerFired(event);
        break;
      case 'subscribe': {
        const { sub, topics } = event;
        if (ended) {
          const denied = topics.map((topic) => ({ topic, ...closed }));
          this._tell({ kind: 'joined', sub, topics: [], denied });
        } else {
          this.joins.subscribe(event);
          this._hurry(event);
        }
        break;
      }
      case 'unsubscribe':
        this.joins.unsubscribe(event.sub);
        this._parts.presence?._saying._keep();
        break;
      case 'publish':
        if (ended) {
          const outcome = { kind: 'rejected', ...closed } as const;
          this._tell({ kind: 'settle', ref: event.ref, outcome });
        } else {
          this.outbox.publish(event);
          this._hurry(event);
        }
        break;
      case 'expire':
        this.outbox.expire(event.ref);
        break;
      case 'updatePresence':
        if (!FINAL.has(this.state)) {
          this._parts.presence?._saying._say(event.topic, event.data, event.ref);
          this._hurry(event);
        } else if (event.ref) {
          this._tell({ kind: 'settle', ref: event.ref, outcome: { kind: 'rejected', ...closed } });
        }
        break;
      default:
        this._fire(event.kind, event);
    }
  }

  /** The program called: what waits long for the next attempt does so no longer. */
  private _hurry(event: Event): void {
    if (!this._sleeping) return;
    this._called = this._timers.has('hold');
    if (!this._called) this._fire('called', event);
  }

  private _timerFired(event: TimerFired): void {
    const { name } = event;
    if (name === 'pace') {
      this.outbox.paced();
      this._parts.presence?._saying._flush();
    } else if (name === 'rejoin') {
      this.joins.rejoin();
    } else if (name === 'hold') {
      if (this._called) this._fire('called', event);
    } else {
      if (name === 'suspend') {
        this._overdue = true;
        this._apart = Math.max(this._apart, this._options.suspendAfter);
      }
      this._late ||= name === 'fallback';
      this._fire(`@${name}`, event);
    }
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
        if (this.state === 'authenticating' && actionOf(frame) !== 'retry') {
          this._fire('auth.error', event);
        } else if (this._linked) {
          if (endsConnection(frame)) this._stayAway = frame.retry_after_ms ?? 0;
          this._parts.rare?._error(frame);
        }
        break;
      default:
        if (this._peer && !this._works) this._provesWell();
        // `unsubscribed` says nothing that is not known.
        if (frame.type === 'subscribed') this.joins.subscribed(frame, event.at);
        else if (frame.type === 'published') this.outbox.published(frame);
        else if (frame.type === 'presence.snapshot') this._parts.presence?._snapshot(frame);
    }
  }

  // ---------------------------------------------------------------- the table

  /** Take the first row whose guards hold; a pair without one has no meaning now. */
  private _fire(name: Name, event: Event): void {
    const pair = `${this.state} ${name}`;
    const rows = ROWS.get(pair) ?? [];
    const n = rows.findIndex(({ guards }) => guards.every((guard) => this._steps[guard](event)));
    const row = rows[n];
    if (!row) return;
    this.fired?.add(`${pair} ${n}`);
    this._take(row, event);
  }

  private _take({ to, actions }: Row, event: Event): void {
    const from = this.state;
    const before = this._out;
    this._out = [];
    this._retryIn = undefined;
    this.state = to;
    for (const action of actions) {
      const timer = action.slice(1) as keyof typeof AFTER;
      if (action[0] === '-') this._stop(timer);
      else if (action[0] === '+') this._start(timer, this._options[AFTER[timer]]);
      else this._steps[action as Action](event);
    }
    const { code, reason } = causeOf(event);
    if (to !== from) {
      before.push({
        kind: 'stateChanged',
        from,
        to,
        public: publicState(to),
        code,
        reason,
        retryIn: this._retryIn,
        attempt: this._attempt,
      });
    }
    before.push(...this._out);
    this._out = before;
  }
}
