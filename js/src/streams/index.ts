/**
 * Answers of language models, streamed token by token over a topic.
 *
 * A writer publishes an answer while it is made; any number of readers follow it, come late, lose
 * their connection, cancel it, and end with the same text. docs/streams.md is the guide.
 */

import type { PubSub } from '../client.js';
import type { Client } from './reader.js';
import type { StreamWriter, WriteStreamOptions } from './writer.js';

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
 * Begin a stream; what writes is loaded by the first call.
 *
 *     await using w = await writeStream(ps, 'chat.session.abc', { id: responseId });
 *     await w.pipe(result.textStream);
 *
 * @param client Publishes it; any number of streams may share one, and its rate.
 * @param topic A topic without wildcards.
 * @throws UsageError `takeOver` without `id`.
 * @throws Conflict `takeOver` of a stream that has ended.
 */
export async function writeStream<Topics extends object>(
  client: PubSub<Topics>,
  topic: string,
  options: WriteStreamOptions = {},
): Promise<StreamWriter> {
  const { StreamWriter } = await import('./writer.js');
  return new StreamWriter(client as unknown as Client, topic, options).open();
}
