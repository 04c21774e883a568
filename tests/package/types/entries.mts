/** The other entries of the package that need no other package. */

export type * as aiSdk from '@hanzoai/pubsub/ai-sdk';
export type * as models from '@hanzoai/pubsub/models';
export type * as requests from '@hanzoai/pubsub/requests';
export type * as schema from '@hanzoai/pubsub/schema';
export type * as soc from '@hanzoai/pubsub/soc';
export type * as sse from '@hanzoai/pubsub/sse';
export type * as streams from '@hanzoai/pubsub/streams';
export type * as svelte from '@hanzoai/pubsub/svelte';
export type * as testing from '@hanzoai/pubsub/testing';
export type * as tokens from '@hanzoai/pubsub/tokens';
export type * as webhooks from '@hanzoai/pubsub/webhooks';
