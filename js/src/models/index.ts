/** Streams of the clients of models, as pieces for `StreamWriter.pipe`; imports none of these packages. */

export { type AnthropicEvent, fromAnthropic } from './anthropic.js';
export { fromOpenAI, type OpenAIEvent } from './openai.js';
export { ModelError, type ModelSource } from './source.js';
