/** Who is on a topic, and what is left of them for a while after a cut (HIP-56 Presence). */

import type { TimerHandle } from '../clock.js';
import type { JsonObject, PresenceMember } from '../generated/wire.js';
import { compact } from '../wire/compact.js';
import { isObject } from '../wire/guard.js';
import { Problem } from './problem.js';
import { checkSize } from './requests.js';
import type { Identity, Kind } from './tokens.js';

/** Bytes of JSON of a member's metadata. */
const METADATA_BYTES = 16_384;

/** Characters of a member's own fields. */
const TEXTS: Readonly<Record<string, number>> = { status: 64, name: 256, avatar_url: 2_048 };

interface Place {
  readonly joinedAt: number;
  /** Counts who joined. */
  readonly number: number;
  kept: boolean;
  texts: JsonObject;
  metadata: JsonObject;
}

interface Client {
  identity: Identity;
  lastSeen: number;
  readonly places: Map<string, Place>;
  /** When its places are lost, after its connection was. */
  lapse?: TimerHandle | undefined;
}

/** A member with its topic, and what kind of identity it is. */
export interface Seat {
  readonly topic: string;
  readonly member: PresenceMember;
  readonly kind: Kind;
}

/** Members of all topics; pure state, telling others is the hub's work. */
export class Presence {
  private readonly _clients = new Map<string, Client>();
  private _joined = 0;

  /** @param _seen When a connected client was last heard, Unix milliseconds. */
  constructor(private readonly _seen: (clientId: string) => number | undefined) {}

  /** Topics with a member. */
  get topics(): string[] {
    return [...new Set([...this._clients.values()].flatMap(({ places }) => [...places.keys()]))];
  }

  /** Everybody on a topic, in the order they came. */
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

  /** The client authenticated again. */
  refresh(clientId: string, identity: Identity): void {
    const client = this._clients.get(clientId);
    if (client) client.identity = identity;
  }

  /** Become a member; undefined for one who is known already. */
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

  /** Be a member no more; undefined for one who was none. */
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

  /** Leave every topic. */
  leaveAll(clientId: string): Seat[] {
    const topics = [...(this._clients.get(clientId)?.places.keys() ?? [])];
    return topics.flatMap((topic) => this.leave(clientId, topic) ?? []);
  }

  /**
   * The connection was lost: its places are kept for a while.
   *
   * @param grace Calls a function when that time is over.
   * @param tell Gets who left then.
   */
  lose(
    clientId: string,
    lastSeen: number,
    grace: (lapse: () => void) => TimerHandle,
    tell: (seat: Seat) => void,
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
        if (seat) tell(seat);
      }
    });
  }

  /** Stop waiting for lost clients. */
  stop(): void {
    for (const { lapse } of this._clients.values()) lapse?.cancel();
  }

  /**
   * Change a client's state on one topic, or on all.
   *
   * @throws Problem `invalid_payload`, `payload_too_large`, `not_found` if it is not a member.
   */
  update(clientId: string, topic: string | undefined, data: JsonObject, now: number): Seat[] {
    const client = this._clients.get(clientId);
    const places = [...(client?.places ?? [])].filter(([name]) =>
      [name, undefined].includes(topic),
    );
    if (topic !== undefined && !places.length) {
      const said = 'this client is not a member of the topic';
      const remedy = 'Subscribe to the topic by its name: its subscribers are its members.';
      throw new Problem('not_found', said, { topic, remedy });
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
    const merged = places.map(([, place]) =>
      withoutNulls({ ...place.metadata, ...metadata, ...Object.fromEntries(extra) }),
    );
    for (const each of merged) checkSize(each, 'data', METADATA_BYTES);
    return places.flatMap(([name, place], n) => {
      if (!client) return [];
      place.metadata = merged[n] ?? {};
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
