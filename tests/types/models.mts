/** What the entry `models` takes fits the types of the real packages. */

import type Anthropic from '@anthropic-ai/sdk';
import type OpenAI from 'openai';

import { fromAnthropic, fromOpenAI } from '../../js/src/models/index.js';
import type { StreamWriter } from '../../js/src/streams/index.js';

const messages = [{ role: 'user', content: 'weather?' } as const];

export async function publishResponses(openai: OpenAI, w: StreamWriter): Promise<void> {
  const stream = await openai.responses.create({ model: 'm', input: 'weather?', stream: true });
  await w.pipe(fromOpenAI(stream));
}

export async function publishCompletions(openai: OpenAI, w: StreamWriter): Promise<void> {
  const stream = await openai.chat.completions.create({ model: 'm', messages, stream: true });
  await w.pipe(fromOpenAI(stream));
}

export async function publishMessages(anthropic: Anthropic, w: StreamWriter): Promise<void> {
  const asked = { model: 'm', max_tokens: 9, messages };
  await w.pipe(fromAnthropic(await anthropic.messages.create({ ...asked, stream: true })));
  await w.pipe(fromAnthropic(anthropic.messages.stream(asked)));
}

export async function refused(openai: OpenAI): Promise<void> {
  const stream = await openai.chat.completions.create({ model: 'm', messages, stream: true });
  // @ts-expect-error Chunks of OpenAI are no events of Anthropic.
  fromAnthropic(stream);
  // @ts-expect-error An answer that is not streamed.
  fromOpenAI(await openai.chat.completions.create({ model: 'm', messages }));
}
