/** Presence of others: what subscriptions are shown of the members of their topics. */

import { presenceGrace } from '../generated/limits.js';
import type { Envelope, PresenceSnapshotFrame } from '../generated/wire.js';
import type { Context } from './context.js';
import { PresenceMembers } from './members.js';
import type { PresenceChange } from './ports.js';
import type { Routes } from './routes.js';
import type { SubscriptionState } from './subscription_state.js';

/** The part `presence` of a session. */
export class Presence {
  private readonly _members = new PresenceMembers();

  constructor(
    private readonly _context: Context,
    private readonly _routes: Routes,
  ) {}

  /** Show a later subscription what the others know. */
  show(one: SubscriptionState): void {
    if (!wants(one)) return;
    for (const [topic, members] of this._members.complete()) {
      const change = { topic, members, change: 'snapshot', member: undefined } as const;
      if (one.takes(topic)) this._showOne(one, change);
    }
  }

  /** Take a join, update or leave that came as a message to these subscriptions. */
  message(message: Envelope, takers: readonly SubscriptionState[]): void {
    if (takers.some(wants)) this._showAll(this._members.apply(message));
  }

  /** Everybody present on a topic. */
  snapshot({ topic, members }: PresenceSnapshotFrame): void {
    if (this._context.peer && this._wanted(topic)) {
      this._showAll(this._members.snapshot(topic, members));
    }
  }

  /** The connection or stream is gone. */
  lost(): void {
    this._members.lost();
  }

  /**
   * A connection is there again; on a server that has forgotten this client, members return.
   *
   * @param known The server still knows this client.
   */
  reconnected(known: boolean): void {
    if (this._members.reconnected(known)) this._context.timers.start('grace', presenceGrace);
  }

  /** The timer `grace` fired: members that have not returned have left. */
  expire(): void {
    this._showAll(this._members.expire());
  }

  /** A subscription was answered on a new connection. */
  answered(one: SubscriptionState): void {
    if (!wants(one)) return;
    const all = [...this._routes.all.values()];
    const changes = this._members.forgetUnproven(
      (topic) => this._leadsTo(one, topic),
      (topic) => all.some((other) => wants(other) && other.patterns.includes(topic)),
    );
    this._showAll(changes);
  }

  /** Show a subscription that was refused for now an empty member list. */
  hide(one: SubscriptionState): void {
    for (const topic of wants(one) ? this._members.occupied() : []) {
      if (one.takes(topic) && !this._leadsTo(one, topic)) {
        this._showOne(one, { topic, members: [], change: 'snapshot', member: undefined });
      }
    }
    this.keepTopics();
  }

  /** Forget the topics whose presence no subscription wants any more. */
  keepTopics(): void {
    this._members.keep((topic) => this._wanted(topic));
  }

  /** Whether any subscription that shares a pattern with this one wants presence. */
  watches(one: SubscriptionState): boolean {
    const mine = new Set(one.patterns);
    return [...this._routes.all.values()].some(
      (other) => wants(other) && other.patterns.some((pattern) => mine.has(pattern)),
    );
  }

  private _leadsTo(one: SubscriptionState, topic: string): boolean {
    return this._routes.find(topic).includes(one);
  }

  private _wanted(topic: string): boolean {
    return this._routes.find(topic).some(wants);
  }

  private _showAll(changes: readonly PresenceChange[]): void {
    for (const change of changes) {
      for (const one of this._routes.find(change.topic)) {
        if (wants(one)) this._showOne(one, change);
      }
    }
  }

  private _showOne({ request }: SubscriptionState, change: PresenceChange): void {
    this._context.ports.presenceChanged(request.sub, change);
  }
}

function wants({ request }: SubscriptionState): boolean {
  return request.presence ?? false;
}
