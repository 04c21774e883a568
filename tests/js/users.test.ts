import assert from 'node:assert/strict';
import { test } from 'node:test';

import { occupancyOf, type PresenceMember, usersOf } from '../../js/src/index.js';

const member = (client: string, user: string): PresenceMember => ({
  client_id: client,
  user_id: user,
  name: user,
  joined_at: 0,
  last_seen: 0,
});

const ROOM = [
  member('c1', 'alice'),
  member('c2', 'bob'),
  member('c3', 'alice'),
  member('c4', ''),
  member('c5', ''),
];

test('a user with several connections is listed once, by the connection that joined first', () => {
  assert.deepEqual(
    usersOf(ROOM).map(({ client_id }) => client_id),
    ['c1', 'c2', 'c4', 'c5'],
  );
});

test('connections without a user count as users of their own', () => {
  assert.deepEqual(occupancyOf(ROOM), { members: 5, users: 4 });
  assert.deepEqual(occupancyOf([]), { members: 0, users: 0 });
});

test('the members of a map are read in its order, and only once', () => {
  const members = new Map(ROOM.map((each) => [each.client_id, each]));
  assert.deepEqual(occupancyOf(members.values()), { members: 5, users: 4 });
});
