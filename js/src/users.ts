/** The users behind the members of a topic. */

import type { Occupancy, PresenceMember } from './values.js';

/**
 * The users among members, each once, in the order of `members`.
 *
 * @param members The members from `onPresence`, `ps.presence()` or `usePresence`.
 * @returns The first member of each user, which is the connection that joined first.
 */
export function usersOf(members: Iterable<PresenceMember>): PresenceMember[] {
  const users = new Map<string, PresenceMember>();
  for (const member of members) {
    const user = member.user_id || member.client_id;
    if (!users.has(user)) users.set(user, member);
  }
  return [...users.values()];
}

/** The number of members, and of their users. */
export function occupancyOf(members: Iterable<PresenceMember>): Occupancy {
  const all = [...members];
  return { members: all.length, users: usersOf(all).length };
}
