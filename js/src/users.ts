/** The users behind the members of a topic. */

import type { Occupancy, PresenceMember } from './values.js';

/**
 * Each user once, in the order of `members`, of members that are connections.
 *
 * @param members What `onPresence`, `ps.presence()` or `usePresence` gives.
 * @returns Of each user the first member, which is the connection that joined first.
 */
export function usersOf(members: Iterable<PresenceMember>): PresenceMember[] {
  const users = new Map<string, PresenceMember>();
  for (const member of members) {
    const user = member.user_id || member.client_id;
    if (!users.has(user)) users.set(user, member);
  }
  return [...users.values()];
}

/** How many members these are, and of how many users. */
export function occupancyOf(members: Iterable<PresenceMember>): Occupancy {
  const all = [...members];
  return { members: all.length, users: usersOf(all).length };
}
