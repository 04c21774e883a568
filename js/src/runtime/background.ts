/** What a first connection does not need: it loads beside that, and knows nothing of the client. */

export { Backpressure } from './backpressure.js';
export { missed, retained, unseen } from './gaps.js';
export { probe } from './probe.js';
export { watch } from './watch.js';
