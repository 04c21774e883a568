/**
 * Token streams and the AI SDK (`ai`, `@ai-sdk/react`, `@ai-sdk/vue`, …): a transport for its chats
 * whose answers survive a reload and can be stopped from any tab, and its streams as pieces.
 */

export type { ChatChunk } from './chunks.js';
export { fromAISDK, type ModelSource } from './source.js';
export {
  type ChatRequest,
  HanzoChatTransport,
  type HanzoChatTransportOptions,
} from './transport.js';
