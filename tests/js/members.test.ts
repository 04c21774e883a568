import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PresenceMembers } from '../../js/src/session/members.js';

const COUNT = 1_000;

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
  const presence = new PresenceMembers();
  presence.snapshot('a', members);
  presence.reconnected(false);
  presence.snapshot('a', []);
  reads = 0;
  const changes = presence.expire();
  assert.deepEqual(
    changes.map(({ change }) => change),
    members.map((_, n) => (n < COUNT / 2 ? 'disconnect' : 'leave')),
  );
  assert.ok(reads < 5 * COUNT, `${reads} reads of ${COUNT} members`);
});
