/**
 * Signed topics: readers verify the author of each message without trusting the servers.
 *
 *     await using topic = new SignedTopic({ client: ps, id: 'alerts', key });
 *     await topic.publish({ level: 3 });
 *
 *     for await (const { data } of new SignedTopic({ client: ps, id: 'alerts', owner })) show(data);
 *
 * docs/signed.md is the guide. Needs `@noble/curves` and `@noble/hashes`.
 */

export type { Forged, SignedEvent, SignedMessage } from './messages.js';
export type { SignedTopicOptions, Signer } from './topic.js';
export { SignedTopic } from './topic.js';
