/** Sends presence to the readers of a topic. */

import type { Envelope, JsonObject } from '../generated/wire.js';
import { isWildcard } from '../topics.js';
import type { Published } from '../values.js';
import type { Connection } from './connection.js';
import type { Core } from './core.js';
import type { Seat } from './presence.js';
import type { Identity } from './tokens.js';
import { TopicTrie } from './topic_trie.js';

/** Maximum snapshots sent for one `subscribe` frame. */
const SNAPSHOTS_MAX = 1_000;

/** Connects the presence state with the connections. */
export class Attendance {
  constructor(private readonly _core: Core) {}

  /** Add the connection to a topic it subscribed to by name. */
  enter(connection: Connection, identity: Identity, topic: string): void {
    const { presence } = this._core;
    const seat = presence.join(connection.clientId, identity, topic, this._core.wall());
    // The list that the connection gets next contains it.
    if (seat) this._announce('join', seat, connection.patterns.get(topic) ? connection : undefined);
  }

  /** Remove the connection from a topic it unsubscribed from. */
  quit(connection: Connection, topic: string): void {
    const seat = this._core.presence.leave(connection.clientId, topic);
    // Also to this connection, if a pattern shows it the topic.
    if (seat) this._announce('leave', seat);
  }

  /** Remove a client that has gone permanently. */
  depart(clientId: string): void {
    for (const seat of this._core.presence.leaveAll(clientId)) this._announce('leave', seat);
  }

  /**
   * Start the grace period of a lost connection; without a reconnect, its members leave afterwards.
   */
  lose(connection: Connection, grace: number): void {
    const { presence, clock } = this._core;
    presence.lose(
      connection.clientId,
      this._core.lastSeen(connection),
      (lapse) => clock.callLater(grace, lapse),
      (seat) => this._announce('leave', seat),
    );
  }

  /**
   * Change the state of a client.
   *
   * @param topic The topic; undefined changes all topics of which it is a member.
   * @throws Problem See `Presence.update`.
   */
  update(
    { clientId }: Connection,
    topic: string | undefined,
    data: JsonObject,
  ): Published & { readonly timestamp: number } {
    const timestamp = this._core.wall();
    const id = this._core.messageId();
    for (const seat of this._core.presence.update(clientId, topic, data, timestamp)) {
      this._announce('update', seat, undefined, id);
    }
    return { id, timestamp, seq: undefined, duplicate: false };
  }

  /** Send snapshots of the topics that a new subscription covers. */
  show(connection: Connection, identity: Identity, patterns: readonly string[]): void {
    const trie = new TopicTrie<string>();
    for (const pattern of patterns) trie.insert(pattern, pattern);
    const found = this._core.presence.topics.filter(
      (topic) => trie.match(topic).length && this._core.mayRead(identity, topic),
    );
    const named = patterns.filter((pattern) => !isWildcard(pattern));
    const topics = new Set([...named, ...found.slice(0, SNAPSHOTS_MAX)]);
    for (const topic of topics) this._snapshot(connection, topic);
  }

  private _snapshot({ sink }: Connection, topic: string): void {
    const members = this._core.presence.members(topic);
    sink.write({ type: 'presence.snapshot', topic, members });
  }

  private _announce(
    change: 'join' | 'update' | 'leave',
    { topic, member, kind }: Seat,
    but?: Connection,
    id = this._core.messageId(),
  ): void {
    this._core.stats.presenceChanges += 1;
    const message: Envelope = {
      id,
      topic,
      type: `presence.${change}`,
      data: member,
      sender: { type: kind, id: member.user_id },
      timestamp: this._core.wall(),
    };
    for (const connection of this._core.readers(topic)) {
      if (connection === but || !connection.takesPresence(topic)) continue;
      if (connection.sink.isStream) this._snapshot(connection, topic);
      else connection.sink.write({ type: 'message', message });
    }
  }
}
