/**
 * Presence of others: the members of topics, from snapshots, joins, updates and leaves, and their
 * changes for subscriptions.
 */

import { presenceGrace } from '../generated/limits.js';
import {
  type Envelope,
  isPresenceMember,
  type JsonObject,
  type PresenceMember,
  type PresenceSnapshotFrame,
} from '../generated/wire.js';
import { isWildcard, matches } from '../topics.js';
import type { PresenceChange } from '../values.js';
import { isObject } from '../wire/guard.js';
import type { Context, DeliveryPorts } from './ports.js';
import { Routes, type SubscriptionState } from './routes.js';

/**
 * Maximum topics; beyond that, those without members are dropped, or else the one idle longest.
 */
const MAX_TOPICS = 10_000;

/** Maximum members of one topic; the client does not show more. */
const MAX_MEMBERS = 10_000;

type Kind = PresenceChange['change'];

class Room {
  _members = new Map<string, PresenceMember>();
  /** Members from before a reconnect, by client id, that may return, perhaps under another id. */
  awaited = new Map<string, PresenceMember>();
  /** Whether a snapshot, if one arrives, names all of them that are still present. */
  doubted = false;
  _complete = false;
  proven = true;

  constructor(readonly _topic: string) {}
}

/**
 * Members by topic and client id, shown to subscriptions (PRES-1, PRES-4, H-082 to H-085).
 *
 * A member is one connection of a user. A user joins with the first connection and leaves with the
 * last one; the others connect and disconnect.
 *
 * Members from before a reconnect stay until the next snapshot. The client then reports only the
 * differences. Without a snapshot, they stay until `expire` is called. If the server has forgotten
 * this client, it may have forgotten others too: members that are missing from the snapshot stay
 * until they return or `expire` is called.
 */
export class Presence {
  private readonly _rooms = new Map<string, Room>();
  /** Only of subscriptions with presence. */
  private readonly _routes = new Routes();

  constructor(
    private readonly _context: Context,
    private readonly _deliveries: DeliveryPorts,
  ) {}

  // ---------------------------------------------------------------- from the server

  message({ type, topic, data: given, timestamp }: Envelope): void {
    const data = memberData(given);
    if (!data || !this._routes.matching(topic).length) return;
    const room = this._open(topic);
    const before = room._members.get(data.client_id);
    if (type === 'presence.leave') {
      if (before) this._take(room, before);
      return;
    }
    if (!before && room._members.size - room.awaited.size >= MAX_MEMBERS) return;
    const member = merge(before, data, timestamp);
    if (!member) return;
    room.awaited.delete(data.client_id);
    this._put(room, before, member);
  }

  /** Take all members of a topic: shows them the first time, and only differences after that. */
  snapshot({ topic, members }: PresenceSnapshotFrame): void {
    if (!this._routes.matching(topic).length) return;
    const room = this._open(topic);
    room.proven = true;
    const fresh = new Map(members.slice(0, MAX_MEMBERS).map((one) => [one.client_id, one]));
    if (room.doubted) {
      room.doubted = false;
      room.awaited.clear();
    }
    if (!room._complete) {
      room._complete = true;
      room._members = fresh;
      room.awaited.clear();
      this._show(room, 'snapshot');
      return;
    }
    for (const clientId of fresh.keys()) room.awaited.delete(clientId);
    // Report joins before leaves: a user whose connection has another id stays.
    for (const [clientId, member] of fresh) this._put(room, room._members.get(clientId), member);
    for (const [clientId, member] of room._members) {
      const mayReturn = room.awaited.has(clientId) && member.user_id;
      if (!fresh.has(clientId) && !mayReturn) this._take(room, member);
    }
  }

  /** The connection or stream is lost: members may leave unnoticed. */
  lost(): void {
    for (const room of this._rooms.values()) room.proven = false;
  }

  /**
   * A new connection is open; members may return under another id if the server forgot them.
   *
   * @param known The server still knows this client.
   */
  reconnected(known: boolean): void {
    let awaited = 0;
    for (const room of this._rooms.values()) {
      if (!known || room.awaited.size) {
        room.doubted &&= known;
        room.awaited = new Map(room._members);
      }
      awaited += room.awaited.size;
    }
    if (awaited) this._awaitMembers();
  }

  /**
   * The timer `grace` fired: drop the members that have not returned after a reconnect.
   *
   * They leave together, because each change carries the list of the remaining members. A list for
   * each of 10,000 leaves would take half a gigabyte.
   */
  expire(): void {
    for (const room of this._rooms.values()) {
      const gone = [...room.awaited.values()].reverse();
      for (const { client_id } of gone) room._members.delete(client_id);
      room.awaited.clear();
      room.doubted = false;
      const members = inOrder(room);
      const users = new Set(members.map(({ user_id }) => user_id));
      const left = gone.map((member): [Kind, PresenceMember] => {
        const { user_id: user } = member;
        const kind = user && users.has(user) ? 'disconnect' : 'leave';
        users.add(user);
        return [kind, member];
      });
      for (const [kind, member] of left.reverse()) this._show(room, kind, member, members);
    }
  }

  // ---------------------------------------------------------------- from the subscriptions

  /** Show a subscription changes, and first the known members of topics new to it. */
  add(state: SubscriptionState): void {
    if (!state.request.presence) return;
    this.show(state, this._routed(state));
    this._routes.add(state);
  }

  /** Stop showing it changes of these patterns; forget topics that no subscription matches. */
  remove(state: SubscriptionState, patterns: readonly string[]): void {
    if (!state.request.presence) return;
    this._routes.remove(state, patterns);
    for (const { _topic: topic } of this._roomsOf(patterns)) {
      if (!this._routes.matching(topic).length) this._rooms.delete(topic);
    }
  }

  /**
   * Show a subscription with presence the known members of its topics.
   *
   * @param others Patterns whose topics are left out.
   * @param hidden Its other topics were rejected temporarily: show empty lists.
   */
  show(state: SubscriptionState, others: readonly string[], hidden?: boolean): void {
    if (!state.request.presence) return;
    const known = new Set(this._roomsOf(others));
    for (const room of this._roomsOf(state._patterns)) {
      if (!room._complete || known.has(room)) continue;
      this._show(room, 'snapshot', undefined, hidden ? [] : undefined, [state]);
    }
  }

  /**
   * The server answered a subscription: await the members from before a reconnect that no snapshot
   * will certainly confirm.
   *
   * A server sends a snapshot for each named topic. For a pattern, it sends snapshots only of
   * topics that have members.
   */
  answered(state: SubscriptionState): void {
    let found = false;
    for (const room of this._roomsOf(this._routed(state))) {
      const isNamed = room._complete && this._routes.byPattern.has(room._topic);
      if (room.proven || isNamed || !room._members.size) continue;
      room.proven = true;
      if (room.awaited.size) continue;
      room.awaited = new Map(room._members);
      room.doubted = found = true;
    }
    if (found) this._awaitMembers();
  }

  /** Whether any subscription that shares a pattern with it wants presence. */
  watches({ _patterns: patterns }: SubscriptionState): boolean {
    return patterns.some((pattern) => this._routes.byPattern.has(pattern));
  }

  // ---------------------------------------------------------------- inside

  private _awaitMembers(): void {
    this._context.timers.start('grace', presenceGrace);
  }

  /** The patterns whose changes are shown to a subscription. */
  private _routed(state: SubscriptionState): string[] {
    return state._patterns.filter((pattern) => this._routes.byPattern.get(pattern)?.has(state));
  }

  private _show(
    room: Room,
    kind: Kind,
    member?: PresenceMember,
    members: readonly PresenceMember[] = inOrder(room),
    states: readonly SubscriptionState[] = this._routes.find(room._topic),
  ): void {
    const change = { topic: room._topic, members, change: kind, member } as PresenceChange;
    for (const { request } of states) this._deliveries.presenceChanged(request.sub, change);
  }

  /** Add a member, or change it if anything except `last_seen` differs. */
  private _put(room: Room, before: PresenceMember | undefined, member: PresenceMember): void {
    if (before && !differs(before, member)) return;
    const kind = before ? 'update' : hasUser(room, member) ? 'connect' : 'join';
    room._members.set(member.client_id, member);
    this._show(room, kind, member);
    const { user_id: user } = member;
    const returned =
      !before && user && [...room.awaited.values()].find((other) => other.user_id === user);
    if (returned) this._take(room, returned);
  }

  private _take(room: Room, member: PresenceMember): void {
    room._members.delete(member.client_id);
    room.awaited.delete(member.client_id);
    this._show(room, hasUser(room, member) ? 'disconnect' : 'leave', member);
  }

  /** The rooms of the topics that any of the patterns matches. */
  private _roomsOf(patterns: readonly string[]): Room[] {
    if (!patterns.some(isWildcard)) return patterns.flatMap((name) => this._rooms.get(name) ?? []);
    return [...this._rooms.values()].filter(({ _topic }) =>
      patterns.some((pattern) => matches(pattern, _topic)),
    );
  }

  private _open(topic: string): Room {
    const room = this._rooms.get(topic) ?? new Room(topic);
    this._rooms.delete(topic);
    if (this._rooms.size >= MAX_TOPICS) {
      const all = [...this._rooms.values()];
      const empty = all.filter(({ _members }) => !_members.size);
      for (const { _topic } of empty.length ? empty : all.slice(0, 1)) this._rooms.delete(_topic);
    }
    this._rooms.set(topic, room);
    return room;
  }
}

/** Whether a connection of the same user is present; some peers send no users. */
function hasUser({ _members }: Room, { user_id: user }: PresenceMember): boolean {
  return !!user && [..._members.values()].some((other) => other.user_id === user);
}

function inOrder(room: Room): PresenceMember[] {
  return [...room._members.values()].sort(
    (a, b) => a.joined_at - b.joined_at || (a.client_id < b.client_id ? -1 : 1),
  );
}

function differs(a: PresenceMember, b: PresenceMember): boolean {
  return orderedJson({ ...a, last_seen: 0 }) !== orderedJson({ ...b, last_seen: 0 });
}

/** The JSON of a value, the same for any order of the keys of its objects. */
function orderedJson(value: unknown): string {
  return JSON.stringify(value, (_, one) =>
    isObject(one)
      ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}

type MemberData = JsonObject & { readonly client_id: string };

/** The member in the data of a presence message: the data itself, or its field `member`. */
function memberData(data: unknown): MemberData | undefined {
  return [data, isObject(data) && data['member']].find(isMemberData);
}

function isMemberData(data: unknown): data is MemberData {
  return isObject(data) && typeof data['client_id'] === 'string';
}

const REQUIRED: readonly string[] = ['user_id', 'name', 'joined_at', 'last_seen'];

/**
 * A member after a join or update. Data with all required fields replaces the member; other data is
 * merged into it. Null means absent.
 */
function merge(
  before: PresenceMember | undefined,
  data: MemberData,
  at: number,
): PresenceMember | undefined {
  const isWhole = REQUIRED.every((key) => Object.hasOwn(data, key));
  const known = isWhole ? {} : { user_id: '', name: '', joined_at: at, ...before, last_seen: at };
  const fields: JsonObject = Object.fromEntries(
    Object.entries({ ...known, ...data }).filter(
      ([key, value]) => value !== null || REQUIRED.includes(key),
    ),
  );
  return isPresenceMember(fields) ? fields : undefined;
}
