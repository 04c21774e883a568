/** Members of topics, also for a grace period after a lost connection (HIP-56 Presence). */

import type { TimerHandle } from '../clock.js';
import { compact } from '../compact.js';
import type { JsonObject, PresenceMember } from '../generated/wire.js';
import { isObject } from '../wire/guard.js';
import { sizeOf } from '../wire/plain.js';
import { Problem } from './problem.js';
import { checkSize } from './requests.js';
import type { Identity, Kind } from './tokens.js';

/** Maximum size of a member's metadata, in bytes of JSON. */
const METADATA_BYTES = 16_384;

/** Maximum size of the metadata of a client on all of its topics together, in bytes of JSON. */
const CLIENT_METADATA_BYTES = 1_048_576;

/** Maximum characters of the text fields of a member. */
const TEXTS: Readonly<Record<string, number>> = { status: 64, name: 256, avatar_url: 2_048 };

interface Place {
  readonly joinedAt: number;
  /** Sequence number of the join, which orders the members. */
  readonly number: number;
  kept: boolean;
  texts: JsonObject;
  metadata: JsonObject;
}

interface Client {
  identity: Identity;
  lastSeen: number;
  readonly places: Map<string, Place>;
  /** Ends the membership of a lost client after the grace period. */
  lapse?: TimerHandle | undefined;
}

/** A member with its topic and the kind of its identity. */
export interface Seat {
  readonly topic: string;
  readonly member: PresenceMember;
  readonly kind: Kind;
}

/** The members of all topics. This is pure state: the caller sends the presence messages. */
export class Presence {
  private readonly _clients = new Map<string, Client>();
  private _joined = 0;

  /** @param _seen Returns when data last arrived from a connected client, in Unix milliseconds. */
  constructor(private readonly _seen: (clientId: string) => number | undefined) {}

  /** The topics that have a member. */
  get topics(): string[] {
    return [...new Set([...this._clients.values()].flatMap(({ places }) => [...places.keys()]))];
  }

  /** The members of a topic, in the order in which they joined. */
  members(topic: string): PresenceMember[] {
    const found = [...this._clients].flatMap(([id, client]) => {
      const place = client.places.get(topic);
      return place ? [{ id, client, place }] : [];
    });
    found.sort((one, other) => one.place.number - other.place.number);
    return found.map(({ id, client, place }) => {
      client.lastSeen = Math.max(client.lastSeen, this._seen(id) ?? 0);
      return memberOf(id, client, place);
    });
  }

  /** Store the new identity of a client that renewed its token. */
  refresh(clientId: string, identity: Identity): void {
    const client = this._clients.get(clientId);
    if (client) client.identity = identity;
  }

  /** Add a member; returns undefined if it is one already. */
  join(clientId: string, identity: Identity, topic: string, now: number): Seat | undefined {
    const client: Client = this._clients.get(clientId) ?? {
      identity,
      lastSeen: now,
      places: new Map(),
    };
    const known = client.places.get(topic);
    if (known) {
      known.kept = true;
      return undefined;
    }
    this._joined += 1;
    const number = this._joined;
    const place: Place = { joinedAt: now, number, kept: true, texts: {}, metadata: {} };
    this._clients.set(clientId, client);
    client.places.set(topic, place);
    client.lastSeen = now;
    return seatOf(clientId, client, topic, place);
  }

  /** Remove a member; returns undefined if it is not one. */
  leave(clientId: string, topic: string): Seat | undefined {
    const client = this._clients.get(clientId);
    const place = client?.places.get(topic);
    if (!client || !place) return undefined;
    client.places.delete(topic);
    if (!client.places.size) {
      this._clients.delete(clientId);
      client.lapse?.cancel();
    }
    return seatOf(clientId, client, topic, place);
  }

  /** Remove a client from all topics. */
  leaveAll(clientId: string): Seat[] {
    const topics = [...(this._clients.get(clientId)?.places.keys() ?? [])];
    return topics.flatMap((topic) => this.leave(clientId, topic) ?? []);
  }

  /**
   * Keep the memberships of a lost client for a grace period.
   *
   * @param grace Starts the grace period and calls the function at its end.
   * @param onLeave Receives each member that leaves then.
   */
  lose(
    clientId: string,
    lastSeen: number,
    grace: (lapse: () => void) => TimerHandle,
    onLeave: (seat: Seat) => void,
  ): void {
    const client = this._clients.get(clientId);
    if (!client) return;
    client.lastSeen = lastSeen;
    for (const place of client.places.values()) place.kept = false;
    client.lapse?.cancel();
    client.lapse = grace(() => {
      client.lapse = undefined;
      for (const [topic, { kept }] of [...client.places]) {
        const seat = kept ? undefined : this.leave(clientId, topic);
        if (seat) onLeave(seat);
      }
    });
  }

  /** Cancel all grace periods. */
  stop(): void {
    for (const { lapse } of this._clients.values()) lapse?.cancel();
  }

  /**
   * Change the state of a client on one topic, or on all.
   *
   * @throws Problem `invalid_payload`, `payload_too_large`; `not_found` if it is not a member.
   */
  update(clientId: string, topic: string | undefined, data: JsonObject, now: number): Seat[] {
    const client = this._clients.get(clientId);
    const places = [...(client?.places ?? [])].filter(([name]) =>
      [name, undefined].includes(topic),
    );
    if (topic !== undefined && !places.length) {
      const detail = `this client is not a member of ${topic}`;
      const remedy = 'Subscribe to the topic by its name: its subscribers are its members.';
      throw new Problem('not_found', detail, { topic, remedy });
    }
    const { metadata = {}, ...fields } = data;
    if (!isObject(metadata)) throw invalid('metadata', 'an object');
    const own = Object.entries(fields).filter(([name]) => Object.hasOwn(TEXTS, name));
    for (const [name, value] of own) {
      const most = TEXTS[name] ?? 0;
      if (value !== null && !(typeof value === 'string' && value.length <= most)) {
        throw invalid(name, `a string of at most ${most} characters, or null`);
      }
    }
    const extra = Object.entries(fields).filter(([name]) => !Object.hasOwn(TEXTS, name));
    const merged = new Map(
      places.map(([name, place]) => [
        name,
        withoutNulls({ ...place.metadata, ...metadata, ...Object.fromEntries(extra) }),
      ]),
    );
    for (const each of merged.values()) checkSize(each, 'data', METADATA_BYTES);
    if (client) checkTotal(client, merged);
    return places.flatMap(([name, place]) => {
      if (!client) return [];
      place.metadata = merged.get(name) ?? {};
      const texts = own.map(([key, value]) => [key, value || null]);
      place.texts = withoutNulls({ ...place.texts, ...Object.fromEntries(texts) });
      client.lastSeen = now;
      return [seatOf(clientId, client, name, place)];
    });
  }
}

function invalid(name: string, kind: string): Problem {
  return new Problem('invalid_payload', `\`data.${name}\` must be ${kind}`, {
    field: `data.${name}`,
  });
}

/** Reject an update after which the metadata of a client is larger, and too large. */
function checkTotal(client: Client, merged: ReadonlyMap<string, JsonObject>): void {
  const places = [...client.places];
  const before = total(places.map(([, { metadata }]) => metadata));
  const size = total(places.map(([name, { metadata }]) => merged.get(name) ?? metadata));
  if (size <= before || size <= CLIENT_METADATA_BYTES) return;
  const detail =
    `with \`data\`, the metadata of this client on all of its topics has ${size} bytes of JSON` +
    ` together; at most ${CLIENT_METADATA_BYTES} are allowed`;
  const remedy = 'Set less metadata on each topic, or delete keys with null.';
  throw new Problem('payload_too_large', detail, { field: 'data', remedy });
}

function total(metadata: readonly JsonObject[]): number {
  const some = metadata.filter((each) => Object.keys(each).length);
  return some.reduce((size, each) => size + sizeOf(each), 0);
}

function withoutNulls(value: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== null));
}

function seatOf(clientId: string, client: Client, topic: string, place: Place): Seat {
  return { topic, member: memberOf(clientId, client, place), kind: client.identity.kind };
}

function memberOf(clientId: string, client: Client, place: Place): PresenceMember {
  const { identity, lastSeen } = client;
  const { texts, metadata, joinedAt } = place;
  return compact<PresenceMember>({
    client_id: clientId,
    user_id: identity.userId,
    name: identity.name,
    ...texts,
    metadata: Object.keys(metadata).length ? metadata : undefined,
    joined_at: joinedAt,
    last_seen: lastSeen,
  });
}
