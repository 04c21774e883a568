/** What the entry `ai-sdk` gives fits the types of the real package. */

import type { ChatTransport, TextStreamPart, ToolSet, UIMessage } from 'ai';

import { fromAISDK, type HanzoChatTransport } from '../../js/src/ai-sdk/index.js';
import type { StreamWriter } from '../../js/src/streams/index.js';

export const asTransport = (transport: HanzoChatTransport): ChatTransport<UIMessage> => transport;

export const publish = async (
  writer: StreamWriter,
  fullStream: AsyncIterable<TextStreamPart<ToolSet>>,
): Promise<void> => writer.pipe(fromAISDK(fullStream));
