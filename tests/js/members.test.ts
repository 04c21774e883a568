import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { PresenceMember } from '../../js/src/generated/wire.js';
import { Context, type DeliveryPorts, type Ports } from '../../js/src/session/ports.js';
import { Presence } from '../../js/src/session/presence.js';
import { SubscriptionState } from '../../js/src/session/routes.js';
import type { SessionOptions } from '../../js/src/settings/session.js';
import type { PresenceChange } from '../../js/src/values.js';

const COUNT = 1_000;

/** Presence of all topics; each call returns the changes that it has caused. */
class WatchedPresence {
  private _changes: PresenceChange[] = [];
  readonly presence: Presence;

  constructor() {
    const ports = { startTimer: () => {} } as unknown as Ports;
    const deliveries = {
      presenceChanged: (_, change) => void this._changes.push(change),
    } as Partial<DeliveryPorts> as DeliveryPorts;
    this.presence = new Presence(new Context({} as SessionOptions, ports, () => 0), deliveries);
    this.presence.add(stateOf('**'));
  }

  snapshot(topic: string, members: readonly PresenceMember[]): PresenceChange[] {
    this.presence.snapshot({ type: 'presence.snapshot', topic, members });
    return this._changes.splice(0);
  }

  expire(): PresenceChange[] {
    this.presence.expire();
    return this._changes.splice(0);
  }

  /** The lists of a new subscription to a pattern, without the topics of others. */
  lists(pattern = '**', others: readonly string[] = []): PresenceChange[] {
    this.presence.show(stateOf(pattern), others);
    return this._changes.splice(0);
  }
}

function stateOf(pattern: string): SubscriptionState {
  const request = { sub: 1, topics: [pattern], presence: true };
  return new SubscriptionState(request, {} as never);
}

/** Topics with a member. */
function occupied(presence: WatchedPresence): string[] {
  return presence.lists().flatMap(({ topic, members }) => (members.length ? [topic] : []));
}

test('the effort for members that do not return grows with their number alone', () => {
  let reads = 0;
  const members = Array.from({ length: COUNT }, (_, n) => ({
    client_id: `c${n}`,
    get user_id(): string {
      reads += 1;
      return `u${n % (COUNT / 2)}`;
    },
    name: '',
    joined_at: n,
    last_seen: 1,
  }));
  const presence = new WatchedPresence();
  presence.snapshot('a', members);
  presence.presence.reconnected(false);
  presence.snapshot('a', []);
  reads = 0;
  const changes = presence.expire();
  assert.deepEqual(
    changes.map(({ change }) => change),
    members.map((_, n) => (n < COUNT / 2 ? 'disconnect' : 'leave')),
  );
  assert.ok(reads < 5 * COUNT, `${reads} reads of ${COUNT} members`);
});

test('topics that have emptied make room before one with members', () => {
  const presence = new WatchedPresence();
  const one = { client_id: 'c', user_id: 'u', name: '', joined_at: 1, last_seen: 1 };
  presence.snapshot('quiet', [one]);
  for (let number = 0; number < 20_000; number += 1) presence.snapshot(`brief.${number}`, []);
  assert.deepEqual(occupied(presence), ['quiet']);
  assert.ok(presence.lists().length <= 10_000);
  for (let number = 0; number < 10_000; number += 1) presence.snapshot(`lasting.${number}`, [one]);
  const left = occupied(presence);
  assert.equal(left.length, 10_000);
  assert.ok(!left.includes('quiet'));
});

test('a member changes if a value in it changes, and not if its keys have another order', () => {
  const presence = new WatchedPresence();
  const metadata = (rest: object) => ({ color: 'red', tags: ['a', { b: 1 }], ...rest });
  const member = { client_id: 'c', user_id: 'u', name: '', joined_at: 1, last_seen: 1 };
  const seen = (one: object) =>
    presence.snapshot('a', [{ ...member, ...one }]).map(({ change }) => change);
  assert.deepEqual(seen({ metadata: metadata({ x: { y: 1, z: null } }) }), ['snapshot']);
  const other = { metadata: { x: { z: null, y: 1 }, ...metadata({}) }, last_seen: 2, name: '' };
  assert.deepEqual(seen(other), []);
  for (const rest of [
    { x: { y: 1 } },
    { x: { y: '1' } },
    { x: [1] },
    { x: { 0: 1 } },
    { tags: [{ b: 1 }, 'a'] },
  ]) {
    assert.deepEqual(seen({ metadata: metadata(rest) }), ['update']);
  }
});

test('the members of topics that are left out are not read', () => {
  let reads = 0;
  const member = (id: string) => ({
    client_id: id,
    user_id: '',
    name: '',
    get joined_at(): number {
      reads += 1;
      return 1;
    },
    last_seen: 1,
  });
  const presence = new WatchedPresence();
  presence.snapshot('a.b', [member('c1'), member('c2')]);
  presence.snapshot('a.c', [member('c3')]);
  reads = 0;
  assert.deepEqual(
    presence.lists('a.*', ['a.b']).map(({ topic }) => topic),
    ['a.c'],
  );
  assert.equal(reads, 0);
});
