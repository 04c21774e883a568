/** Who is present: a member map for each topic, folded from snapshots, joins, updates and leaves. */

import {
  type Envelope,
  isPresenceMember,
  type JsonObject,
  type PresenceMember,
  type PresenceSnapshotFrame,
} from '../generated/wire.js';
import type { PresenceChangeKind } from './effects.js';
import type { Join } from './join.js';
import type { Lifecycle } from './lifecycle.js';
import { Saying } from './saying.js';

/** What a message of each presence type does. */
export const KINDS: ReadonlyMap<string, 'join' | 'update' | 'leave'> = new Map([
  ['presence.join', 'join'],
  ['presence.update', 'update'],
  ['presence.leave', 'leave'],
]);

/** Topics whose members are kept; the one idle longest gives way. */
const MAX_TOPICS = 10_000;

/** Members kept of one topic; more are not shown. */
const MAX_MEMBERS = 10_000;

/** One change of the members of a topic; `member` is undefined for a snapshot. */
export interface Change {
  readonly topic: string;
  readonly members: readonly PresenceMember[];
  readonly change: PresenceChangeKind;
  readonly member: PresenceMember | undefined;
}

/** The part `presence` of a session. */
export class Presence {
  private readonly _map = new PresenceMap();
  /** What the user says of itself. */
  readonly _saying: Saying;

  constructor(private readonly _session: Lifecycle) {
    this._saying = new Saying(_session);
  }

  // ---------------------------------------------------------------- of others

  /** Tell one who comes later what the others know. */
  _show(join: Join): void {
    if (!wants(join)) return;
    for (const [topic, members] of this._map.complete()) {
      const change = { topic, members, change: 'snapshot', member: undefined } as const;
      if (join._takes(topic)) this._tellOne(join, change);
    }
  }

  /** Take a join, update or leave that came as a message to these subscriptions. */
  _message(message: Envelope, joins: readonly Join[]): void {
    if (joins.some(wants)) this._tell(this._map.apply(message));
  }

  /** Everybody present on a topic. */
  _snapshot({ topic, members }: PresenceSnapshotFrame): void {
    if (this._session._peer && this._wanted(topic)) this._tell(this._map.snapshot(topic, members));
  }

  /** The connection or stream is gone. */
  _lost(): void {
    this._map.lost();
  }

  /** A subscription was answered on a new connection. */
  _answered(join: Join): void {
    if (!wants(join)) return;
    const joins = [...this._session.joins._joins.values()];
    const changes = this._map.forgetUnproven(
      (topic) => this._leadsTo(join, topic),
      (topic) => joins.some((one) => wants(one) && one._patterns.includes(topic)),
    );
    this._tell(changes);
  }

  /** Nobody tells this one any more who is present where it was refused for now. */
  _hide(join: Join): void {
    for (const topic of wants(join) ? this._map.occupied() : []) {
      if (join._takes(topic) && !this._leadsTo(join, topic)) {
        this._tellOne(join, { topic, members: [], change: 'snapshot', member: undefined });
      }
    }
    this._keepTopics();
  }

  /** Forget the topics whose presence nobody wants any more. */
  _keepTopics(): void {
    this._map.keep((topic) => this._wanted(topic));
  }

  /** Whether any subscription that shares a pattern with this one wants presence. */
  _watches(join: Join): boolean {
    const mine = new Set(join._patterns);
    return [...this._session.joins._joins.values()].some(
      (other) => wants(other) && other._patterns.some((pattern) => mine.has(pattern)),
    );
  }

  private _leadsTo(join: Join, topic: string): boolean {
    return this._session.joins._routes._find(topic).includes(join);
  }

  private _wanted(topic: string): boolean {
    return this._session.joins._routes._find(topic).some(wants);
  }

  private _tell(changes: readonly Change[]): void {
    for (const change of changes) {
      for (const join of this._session.joins._routes._find(change.topic)) {
        if (wants(join)) this._tellOne(join, change);
      }
    }
  }

  private _tellOne({ _event: { sub } }: Join, change: Change): void {
    this._session._tell({ kind: 'presenceChanged', sub, ...change });
  }
}

function wants({ _event }: Join): boolean {
  return _event.presence ?? false;
}

class Room {
  members = new Map<string, PresenceMember>();
  complete = false;
  proven = true;
}

/**
 * Members by topic and client id (PRES-1, PRES-4, H-082 to H-085).
 *
 * A member is one connection of a user. A user joins with the first connection and leaves with the
 * last one; the others connect and disconnect.
 *
 * What was known before a reconnect stays until the snapshot that follows it; then only the
 * differences are told.
 */
export class PresenceMap {
  private readonly _rooms = new Map<string, Room>();

  /** Every topic of which a snapshot has come, with its members. */
  complete(): [topic: string, members: readonly PresenceMember[]][] {
    return [...this._rooms]
      .filter(([, room]) => room.complete)
      .map(([topic, room]) => [topic, inOrder(room)]);
  }

  /** Every topic of which a member is known. */
  occupied(): string[] {
    return [...this._rooms].filter(([, room]) => room.members.size).map(([topic]) => topic);
  }

  /** Take a complete list: told whole the first time, and as differences after that. */
  snapshot(topic: string, members: readonly PresenceMember[]): Change[] {
    const room = this._open(topic);
    room.proven = true;
    const old = room.members;
    const fresh = new Map(members.slice(0, MAX_MEMBERS).map((one) => [one.client_id, one]));
    if (!room.complete) {
      room.complete = true;
      room.members = fresh;
      return [change(topic, room, 'snapshot')];
    }
    const out: Change[] = [];
    room.members = new Map(old);
    // Who comes goes before who leaves: a user whose connection has another id stays.
    for (const [clientId, member] of fresh) {
      const before = old.get(clientId);
      if (!before || differs(before, member)) out.push(put(topic, room, before, member));
    }
    for (const [clientId, member] of old) {
      if (!fresh.has(clientId)) out.push(take(topic, room, member));
    }
    return out;
  }

  /** Take a join, update or leave that came as a message. */
  apply(message: Envelope): Change[] {
    const kind = KINDS.get(message.type);
    const data = memberData(message.data);
    if (!kind || !data) return [];
    const { topic } = message;
    const clientId = data.client_id;
    if (kind === 'leave' && !this._rooms.has(topic)) return [];
    const room = this._open(topic);
    const before = room.members.get(clientId);
    if (kind === 'leave') return before ? [take(topic, room, before)] : [];
    if (!before && room.members.size >= MAX_MEMBERS) return [];
    const member = merge(before, data, message.timestamp);
    if (!member || (before && !differs(before, member))) return [];
    return [put(topic, room, before, member)];
  }

  /** The connection or stream is gone: who is present may leave unseen. */
  lost(): void {
    for (const room of this._rooms.values()) room.proven = false;
  }

  /**
   * Drop the members known from before a reconnect that no snapshot is sure to confirm.
   *
   * A server shows each topic that is named, and of those that a pattern finds the ones that have
   * members.
   *
   * @param takes Whether a topic belongs to the subscription that has just been answered.
   * @param named Whether a subscription with presence names the topic.
   */
  forgetUnproven(takes: (topic: string) => boolean, named: (topic: string) => boolean): Change[] {
    const out: Change[] = [];
    for (const [topic, room] of this._rooms) {
      const proven = room.proven || (room.complete && named(topic));
      if (!proven && room.members.size && takes(topic)) {
        room.members = new Map();
        room.complete = false;
        room.proven = true;
        out.push(change(topic, room, 'snapshot'));
      }
    }
    return out;
  }

  /** Forget the topics that nobody wants any more. */
  keep(wanted: (topic: string) => boolean): void {
    for (const topic of this._rooms.keys()) {
      if (!wanted(topic)) this._rooms.delete(topic);
    }
  }

  private _open(topic: string): Room {
    let room = this._rooms.get(topic);
    if (room) {
      this._rooms.delete(topic);
    } else {
      room = new Room();
      if (this._rooms.size >= MAX_TOPICS) {
        for (const idle of this._rooms.keys()) {
          this._rooms.delete(idle);
          break;
        }
      }
    }
    this._rooms.set(topic, room);
    return room;
  }
}

function change(
  topic: string,
  room: Room,
  kind: PresenceChangeKind,
  member?: PresenceMember,
): Change {
  return { topic, members: inOrder(room), change: kind, member };
}

function put(
  topic: string,
  room: Room,
  before: PresenceMember | undefined,
  member: PresenceMember,
): Change {
  const kind = before ? 'update' : hasUser(room, member) ? 'connect' : 'join';
  room.members.set(member.client_id, member);
  return change(topic, room, kind, member);
}

function take(topic: string, room: Room, member: PresenceMember): Change {
  room.members.delete(member.client_id);
  return change(topic, room, hasUser(room, member) ? 'disconnect' : 'leave', member);
}

/** Whether a connection of the same user is present; some peers do not name users. */
function hasUser({ members }: Room, { user_id: user }: PresenceMember): boolean {
  return !!user && [...members.values()].some((other) => other.user_id === user);
}

function inOrder(room: Room): PresenceMember[] {
  return [...room.members.values()].sort(
    (a, b) => a.joined_at - b.joined_at || (a.client_id < b.client_id ? -1 : 1),
  );
}

/** Whether anything but the time of the last sign of life is another. */
function differs(a: PresenceMember, b: PresenceMember): boolean {
  return a !== b && !same({ ...a, last_seen: 0 }, { ...b, last_seen: 0 });
}

/** Whether two JSON values are equal. */
function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const others = new Map(Object.entries(b));
  const fields = Object.entries(a);
  return (
    fields.length === others.size &&
    fields.every(([key, one]) => others.has(key) && same(one, others.get(key)))
  );
}

type MemberData = JsonObject & { readonly client_id: string };

/** The member in the data of a presence message: as it is, or under `member`. */
function memberData(data: unknown): MemberData | undefined {
  if (isMemberData(data)) return data;
  const inner = isObject(data) ? data['member'] : undefined;
  return isMemberData(inner) ? inner : undefined;
}

function isMemberData(data: unknown): data is MemberData {
  return isObject(data) && typeof data['client_id'] === 'string';
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const REQUIRED: ReadonlySet<string> = new Set(['user_id', 'name', 'joined_at', 'last_seen']);

/**
 * A member after a join or update: data with all that a member must have is the member as it is now,
 * other data is a part of it. Null is absent.
 */
function merge(
  before: PresenceMember | undefined,
  data: MemberData,
  at: number,
): PresenceMember | undefined {
  const isWhole = [...REQUIRED].every((key) => Object.hasOwn(data, key));
  const known = isWhole ? {} : { user_id: '', name: '', joined_at: at, ...before, last_seen: at };
  const fields: JsonObject = Object.fromEntries(
    Object.entries({ ...known, ...data }).filter(
      ([key, value]) => value !== null || REQUIRED.has(key),
    ),
  );
  return isPresenceMember(fields) ? fields : undefined;
}
