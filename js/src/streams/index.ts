/**
 * Answers of language models, streamed token by token over a topic.
 *
 * A writer publishes an answer while it is generated. Any number of readers follow it. They can
 * join late, lose their connection and cancel it, and all end with the same text. docs/streams.md
 * is the guide.
 */

import type { PubSub } from '../client.js';
import { lazily } from '../runtime/parts.js';
import type { Client } from './reader.js';
import type { StreamWriter, WriteStreamOptions } from './writer.js';

export { StreamCancelled } from './cancelled.js';
export type {
  CitationPart,
  ImagePart,
  Part,
  Piece,
  ReasoningPart,
  TextPart,
  ToolCallPart,
} from './parts.js';
export { partialJson, textOf } from './parts.js';
export type { ReadStreamOptions, StreamEnd, StreamEvent, StreamReader } from './reader.js';
export { readStream } from './reader.js';
export type { StreamWriter, WriteStreamOptions } from './writer.js';

/**
 * Start a stream. The first call loads the code of the writer.
 *
 *     await using w = await writeStream(ps, 'chat.session.abc', { id: responseId });
 *     await w.pipe(result.textStream);
 *
 * @param client The client that publishes. Any number of streams may share one client and its rate.
 * @param topic A topic without wildcards.
 * @throws UsageError `takeOver` without `id`.
 * @throws Conflict `takeOver` of a stream that has ended.
 * @throws ConnectionFailed The code of the writer could not be loaded; the next call tries again.
 */
export async function writeStream<Topics extends object>(
  client: PubSub<Topics>,
  topic: string,
  options: WriteStreamOptions = {},
): Promise<StreamWriter> {
  const { StreamWriter } = await lazily(() => import('./writer.js'))();
  return new StreamWriter(client as unknown as Client, topic, options).open();
}
