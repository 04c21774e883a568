/** Presence of others: shows subscriptions the members of their topics. */

import { presenceGrace } from '../generated/limits.js';
import type { Envelope, PresenceSnapshotFrame } from '../generated/wire.js';
import type { PresenceChange } from '../values.js';
import type { Context } from './context.js';
import { PresenceMembers } from './members.js';
import type { DeliveryPorts } from './ports.js';
import { Routes } from './routes.js';
import type { SubscriptionState } from './subscription_state.js';

/** The members of all topics, and the subscriptions that see them. */
export class Presence {
  readonly members: PresenceMembers = new PresenceMembers();
  /** Only of subscriptions with presence. */
  private readonly _routes = new Routes();

  constructor(
    private readonly _context: Context,
    private readonly _deliveries: DeliveryPorts,
  ) {}

  // ---------------------------------------------------------------- from the server

  /** Take a join, update or leave. */
  message(message: Envelope): void {
    if (this._routes.matching(message.topic).length) this._showAll(this.members.apply(message));
  }

  /** All members of a topic. */
  snapshot({ topic, members }: PresenceSnapshotFrame): void {
    if (this._routes.matching(topic).length) this._showAll(this.members.snapshot(topic, members));
  }

  /**
   * A new connection is open; on a server that has forgotten this client, members may return.
   *
   * @param known The server still knows this client.
   */
  reconnected(known: boolean): void {
    if (this.members.reconnected(known)) this._awaitMembers();
  }

  /** The timer `grace` fired: members that have not returned have left. */
  expire(): void {
    this._showAll(this.members.expire());
  }

  // ---------------------------------------------------------------- from the subscriptions

  /** Show a subscription changes, and first the known members of topics new to it. */
  add(state: SubscriptionState): void {
    if (!state.request.presence) return;
    this.show(state, this._routed(state));
    this._routes.add(state);
  }

  /** Stop showing it changes of these patterns. */
  remove(state: SubscriptionState, patterns: readonly string[]): void {
    if (!state.request.presence) return;
    this._routes.remove(state, patterns);
    this.members.drop(patterns, this._routes);
  }

  /**
   * Show a subscription with presence the known members of its topics.
   *
   * @param others Patterns whose topics are left out.
   * @param hidden Its other topics were rejected temporarily: show empty lists.
   */
  show(state: SubscriptionState, others: readonly string[], hidden?: boolean): void {
    if (!state.request.presence) return;
    for (const change of this.members.lists(state.patterns, others, hidden)) {
      this._deliveries.presenceChanged(state.request.sub, change);
    }
  }

  /** The server answered a subscription: some members may have left unnoticed. */
  answered(state: SubscriptionState): void {
    if (this.members.doubt(this._routed(state), this._routes.byPattern)) this._awaitMembers();
  }

  /** Whether any subscription that shares a pattern with it wants presence. */
  watches({ patterns }: SubscriptionState): boolean {
    return patterns.some((pattern) => this._routes.byPattern.has(pattern));
  }

  // ---------------------------------------------------------------- inside

  private _awaitMembers(): void {
    this._context.timers.start('grace', presenceGrace);
  }

  /** The patterns whose changes are shown to a subscription. */
  private _routed(state: SubscriptionState): string[] {
    return state.patterns.filter((pattern) => this._routes.byPattern.get(pattern)?.has(state));
  }

  private _showAll(changes: readonly PresenceChange[]): void {
    for (const change of changes) {
      for (const state of this._routes.find(change.topic)) {
        this._deliveries.presenceChanged(state.request.sub, change);
      }
    }
  }
}
