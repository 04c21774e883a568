/** What an operation needs for arguments that are wrong, or special. */

export { checkPresence, refuseMany, refuseMessage, refuseSubscription } from './refusals.js';
export { prepareInbox } from './special_inbox.js';
