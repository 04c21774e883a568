/** The members of the topics of a server. */

import { compact } from '../../../js/src/compact.js';
import type { JsonObject, PresenceMember } from '../../../js/src/generated/wire.js';
import type { World } from './world.js';

export type Change = 'join' | 'update' | 'leave';

/** Members by topic and client id. `tell` is called with change, topic and member. */
export class Rooms {
  private readonly _rooms = new Map<string, Map<string, PresenceMember>>();

  constructor(
    private readonly _world: World,
    private readonly _tell: (change: Change, topic: string, member: PresenceMember) => void,
  ) {}

  /** Topics that have members. */
  occupied(): string[] {
    return [...this._rooms]
      .filter(([, room]) => room.size)
      .map(([topic]) => topic)
      .sort();
  }

  /** All members of a topic. */
  members(topic: string): PresenceMember[] {
    return [...(this._rooms.get(topic)?.values() ?? [])];
  }

  /** One member of a topic. */
  find(topic: string, clientId: string): PresenceMember | undefined {
    return this._rooms.get(topic)?.get(clientId);
  }

  /** Add a member, unless it is one already. */
  enter(topic: string, clientId: string): void {
    const room = this._rooms.get(topic) ?? new Map<string, PresenceMember>();
    this._rooms.set(topic, room);
    if (room.has(clientId)) return;
    const { now } = this._world;
    const about = { client_id: clientId, user_id: 'u', name: clientId };
    const member = { ...about, joined_at: now, last_seen: now };
    room.set(clientId, member);
    this._tell('join', topic, member);
  }

  /** Remove a member, if it is one. */
  leave(topic: string, clientId: string): void {
    const member = this.find(topic, clientId);
    if (!member) return;
    this._rooms.get(topic)?.delete(clientId);
    this._tell('leave', topic, member);
  }

  /** Change the data of a member: `status`, or keys of `metadata`; null deletes. */
  update(topic: string, clientId: string, data: JsonObject): void {
    const before = this.find(topic, clientId);
    if (!before) return;
    const { status, ...words } = data;
    const metadata = Object.fromEntries(
      Object.entries({ ...before.metadata, ...words }).filter(([, value]) => value !== null),
    );
    const member = compact<PresenceMember>({
      ...before,
      status: typeof status === 'string' ? status : 'status' in data ? undefined : before.status,
      metadata: Object.keys(metadata).length ? metadata : undefined,
      last_seen: this._world.now,
    });
    this._rooms.get(topic)?.set(clientId, member);
    this._tell('update', topic, member);
  }
}
