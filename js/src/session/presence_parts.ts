/** The session parts for presence. */

export { OwnPresence } from './own_presence.js';
export { Presence } from './presence.js';
