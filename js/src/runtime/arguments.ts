/** Code for invalid and for special arguments of operations. */

export { checkPresence, refuseMany, refuseMessage, refuseSubscription } from './refusals.js';
export { prepareInbox } from './special_inbox.js';
