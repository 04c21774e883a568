/**
 * Token streams and the AI SDK (`ai`, `@ai-sdk/react`, `@ai-sdk/vue`, …): a transport for its chats
 * whose answers survive a reload and can be stopped from any tab, and its streams as pieces.
 */

export type { ModelSource } from '../models/source.js';
export type { ChatChunk } from './chunks.js';
export { type AISDKOptions, fromAISDK, type ModelFile } from './source.js';
export {
  type ChatMessages,
  type ChatRequest,
  HanzoChatTransport,
  type HanzoChatTransportOptions,
  type HeaderFields,
} from './transport.js';
