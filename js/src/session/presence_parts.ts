/** The parts of a session with presence. */

export { OwnPresence } from './own_presence.js';
export { Presence } from './presence.js';
