/** Code that the first connection does not need; it loads in parallel. */

export { makeRoom, nextTurn } from '../session/send_policies.js';
export { Backpressure } from './backpressure.js';
export { checkHistory, missed, warn } from './gaps.js';
export { connected, failed, late, updatePresence } from './operations.js';
export { probe } from './probe.js';
export { watch } from './watch.js';
