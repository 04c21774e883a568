/** Presence of others: shows subscriptions the members of their topics. */

import { presenceGrace } from '../generated/limits.js';
import type { Envelope, PresenceSnapshotFrame } from '../generated/wire.js';
import { matches } from '../topics.js';
import type { PresenceChange } from '../values.js';
import type { Context } from './context.js';
import { PresenceMembers } from './members.js';
import type { DeliveryPorts } from './ports.js';
import type { Routes } from './routes.js';
import type { SubscriptionState } from './subscription_state.js';

/** The `presence` part of a session. */
export class Presence {
  readonly members: PresenceMembers = new PresenceMembers();

  constructor(
    private readonly _context: Context,
    private readonly _routes: Routes,
    private readonly _deliveries: DeliveryPorts,
  ) {}

  // ---------------------------------------------------------------- from the server

  /** Take a join, update or leave from a message to these subscriptions. */
  message(message: Envelope, states: readonly SubscriptionState[]): void {
    if (states.some(wants)) this._showAll(this.members.apply(message));
  }

  /** All members of a topic. */
  snapshot({ topic, members }: PresenceSnapshotFrame): void {
    if (this._wanted(topic)) this._showAll(this.members.snapshot(topic, members));
  }

  /**
   * A new connection is open; on a server that has forgotten this client, members may return.
   *
   * @param known The server still knows this client.
   */
  reconnected(known: boolean): void {
    if (this.members.reconnected(known)) this._context.timers.start('grace', presenceGrace);
  }

  /** The timer `grace` fired: members that have not returned have left. */
  expire(): void {
    this._showAll(this.members.expire());
  }

  // ---------------------------------------------------------------- from the subscriptions

  /**
   * Show a subscription the known members of the topics that no route leads to it, before one does.
   *
   * @param hidden They were refused for now: show empty lists.
   */
  show(state: SubscriptionState, hidden?: boolean): void {
    for (const [topic, known] of wants(state) ? this.members.complete() : []) {
      if (covers(state, topic) && !this._leadsTo(state, topic)) {
        const members = hidden ? [] : known;
        const change = { topic, members, change: 'snapshot', member: undefined } as const;
        this._deliveries.presenceChanged(state.request.sub, change);
      }
    }
  }

  /** Forget topics whose presence no subscription wants. */
  keepTopics(): void {
    this.members.keep((topic) => this._wanted(topic));
  }

  /** The server answered a subscription on a new connection. */
  answered(state: SubscriptionState): void {
    if (!wants(state)) return;
    const all = [...this._routes.all.values()];
    const changes = this.members.forgetUnproven(
      (topic) => this._leadsTo(state, topic),
      (topic) => all.some((other) => wants(other) && other.patterns.includes(topic)),
    );
    this._showAll(changes);
  }

  /** Whether any subscription that shares a pattern with it wants presence. */
  watches(state: SubscriptionState): boolean {
    const mine = new Set(state.patterns);
    return [...this._routes.all.values()].some(
      (other) => wants(other) && other.patterns.some((pattern) => mine.has(pattern)),
    );
  }

  // ---------------------------------------------------------------- inside

  private _leadsTo(state: SubscriptionState, topic: string): boolean {
    return this._routes.find(topic).includes(state);
  }

  private _wanted(topic: string): boolean {
    return this._routes.find(topic).some(wants);
  }

  private _showAll(changes: readonly PresenceChange[]): void {
    for (const change of changes) {
      for (const state of this._routes.find(change.topic)) {
        if (wants(state)) this._deliveries.presenceChanged(state.request.sub, change);
      }
    }
  }
}

function wants({ request }: SubscriptionState): boolean {
  return request.presence ?? false;
}

/** Whether a pattern of the subscription matches the topic. */
function covers({ patterns }: SubscriptionState, topic: string): boolean {
  return patterns.some((pattern) => matches(pattern, topic));
}
