/** `HanzoChatTransport`: delivers answers of an AI SDK chat over a topic. */

import { DEVELOPMENT } from '../build.js';
import { driverOf, type PubSub } from '../client.js';
import { OperationTimeout, PubSubError, UsageError } from '../errors.js';
import { within } from '../runtime/waiting.js';
import { checkNames } from '../settings/checks.js';
import { readStream, type StreamEvent, type StreamReader } from '../streams/reader.js';
import { Reading } from '../streams/reading.js';
import { type ChatChunk, Chunks } from './chunks.js';

/** Requested messages per topic: the number that a server keeps by default. */
const RETAINED = 100;

/** Milliseconds to wait for the first frame of an answer, which a queue of jobs may delay. */
const PATIENCE = 300_000;

/** Headers of a request. Node declares no global `HeadersInit`. */
export type HeaderFields = Headers | Record<string, string> | [name: string, value: string][];

/** Options of `HanzoChatTransport`. */
export interface HanzoChatTransportOptions {
  /** Reads the answers. */
  readonly client: PubSub;
  /** The topic of a chat, by its id. */
  readonly topic: (chatId: string) => string;
  /**
   * The route that starts an answer: it receives `{id, messages, trigger, messageId}` by POST,
   * starts a writer, and answers `{"stream": writer.id}` immediately. Default `/api/chat`.
   */
  readonly api?: string | undefined;
  /** Headers of each request to the route, or a function that returns them. */
  readonly headers?: HeaderFields | (() => HeaderFields | Promise<HeaderFields>) | undefined;
  /** Id of the sender whose frames count; default: the sender of the first frame. */
  readonly sender?: string | undefined;
  /** Instead of the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

/** Names of the options. */
const NAMES: readonly (keyof HanzoChatTransportOptions)[] = [
  ...(['client', 'topic', 'api', 'headers', 'sender', 'fetch'] as const),
];

/** A request about a chat, as the AI SDK makes it. */
export interface ChatRequest {
  readonly chatId: string;
  readonly abortSignal?: AbortSignal | undefined;
  readonly headers?: Record<string, string> | Headers | undefined;
  readonly body?: object | undefined;
  readonly metadata?: unknown;
}

/** A request for an answer, as the AI SDK makes it. */
export interface ChatMessages extends ChatRequest {
  readonly messages: readonly unknown[];
  readonly trigger: string;
  readonly messageId: string | undefined;
}

/**
 * A transport for `useChat` and `Chat` of the AI SDK.
 *
 * `stop()` asks the writer to end the answer, also in a tab that has resumed it. If the user has no
 * permission to do so, the client reports the error to `ps.on('error')`. Leaving the page does not
 * end the answer. With `resume: true`, a chat shows a running answer from its beginning.
 */
export class HanzoChatTransport {
  /** An answer that is resumed comes from its beginning. */
  readonly resumeStreamIsReplay = true;
  /** The newest resumptions of this turn of the event loop, by chat. */
  private readonly _resuming = new Map<string, AbortController>();

  /** @param _options `client` and `topic`; the rest has defaults. */
  constructor(private readonly _options: HanzoChatTransportOptions) {
    if (DEVELOPMENT) checkNames('options', _options, NAMES);
  }

  /**
   * Ask the route for an answer, and read it.
   *
   * @throws PubSubError The route rejected the request, or returned no stream.
   */
  async sendMessages(asked: ChatMessages): Promise<ReadableStream<ChatChunk>> {
    const { chatId, abortSignal } = asked;
    const answered = this._ask(asked);
    const read = (stream: string): ReadableStream<ChatChunk> =>
      this._read(chatId, stream, abortSignal);
    try {
      return read((await within(answered, { signal: abortSignal })) as string);
    } catch (error) {
      // An aborted request would not show which answer to end.
      if (abortSignal?.aborted) answered.then((stream) => read(stream).cancel()).catch(() => {});
      throw error;
    }
  }

  private async _ask({
    chatId,
    messages,
    trigger,
    messageId,
    headers,
    body,
  }: ChatMessages): Promise<string> {
    const { api = '/api/chat', headers: own, fetch = globalThis.fetch } = this._options;
    const sent = new Headers(typeof own === 'function' ? await own() : own);
    for (const [name, value] of new Headers(headers)) sent.set(name, value);
    sent.set('content-type', 'application/json');
    const response = await fetch(api, {
      method: 'POST',
      headers: sent,
      body: JSON.stringify({ ...body, id: chatId, messages, trigger, messageId }),
    });
    const answer: unknown = response.ok ? await response.json().catch(() => {}) : undefined;
    const { stream } = Object(answer);
    if (typeof stream !== 'string')
      throw new PubSubError(
        'invalid_payload',
        `${api} answered ${response.status} and named no stream.`,
        { remedy: 'Answer {"stream": writer.id} with the status 200.' },
      );
    return stream;
  }

  /** Follow the running answer; null if there is none. */
  async reconnectToStream({
    chatId,
    abortSignal,
  }: ChatRequest): Promise<ReadableStream<ChatChunk> | null> {
    const { client, topic, sender } = this._options;
    const stopped = this._stopOf(chatId, abortSignal);
    const reading = new Reading('latest', sender);
    const messages = [];
    for await (const message of client.history(topic(chatId), { limit: RETAINED }))
      messages.push({ ...message, sender: message.sender?.id ?? '' });
    reading.begin(messages, 0);
    if (!reading.stream || reading.ended) return null;
    return this._read(chatId, reading.stream, stopped);
  }

  /**
   * Aborted by `stop()`. A chat that is resumed again, for example by the strict mode of React, also
   * aborts the signal of the earlier request, which must not end the answer.
   */
  private _stopOf(chatId: string, signal: AbortSignal | undefined): AbortSignal {
    const { _resuming: resuming } = this;
    const stop = new AbortController();
    const isNewest = (): boolean => (resuming.get(chatId) ?? stop) === stop;
    const decide = (): void => {
      if (isNewest()) stop.abort();
    };
    signal?.addEventListener('abort', () => queueMicrotask(decide), { once: true });
    resuming.set(chatId, stop);
    queueMicrotask(() => {
      if (isNewest()) resuming.delete(chatId);
    });
    return stop.signal;
  }

  private _read(
    chatId: string,
    id: string,
    signal: AbortSignal | undefined,
  ): ReadableStream<ChatChunk> {
    const { client, topic, sender } = this._options;
    const reader = readStream(client, topic(chatId), { id, sender });
    // The chat shows no error after `stop()`, so the client reports it.
    const cancel = (): Promise<void> =>
      reader.cancel('user').catch((error) => {
        if (!(error instanceof UsageError)) driverOf(client).listeners.report(error);
      });
    const isStopped = (): boolean => !!signal?.aborted;
    let isWaiting = true;
    // `cancel` has no effect on a stream that does not exist yet: its first frame cancels it.
    const begin = (event: StreamEvent): void => {
      if (event.kind === 'stalled') {
        // Without a connection, the answer may have begun.
        const isOver = isStopped() || client.state === 'connected';
        if (isWaiting && isOver && event.ms > PATIENCE)
          throw new OperationTimeout('The answer has not begun.', {
            topic: topic(chatId),
            remedy: 'Search the log of your backend for the error of its writer.',
          });
      } else {
        if (isWaiting && isStopped()) void cancel();
        isWaiting = false;
      }
    };
    signal?.addEventListener('abort', cancel, { once: true });
    return new ReadableStream<ChatChunk>({
      start: (controller) => {
        void follow(reader, new Chunks(id), controller, begin).finally(() => {
          signal?.removeEventListener('abort', cancel);
          reader.close();
        });
      },
      cancel: async () => {
        // The signal is aborted in the same turn.
        await Promise.resolve();
        if (!isWaiting || !isStopped()) reader.close();
      },
    });
  }
}

async function follow(
  reader: StreamReader,
  chunks: Chunks,
  controller: ReadableStreamDefaultController<ChatChunk>,
  begin: (event: StreamEvent) => void,
): Promise<void> {
  try {
    for (const chunk of chunks.begin()) controller.enqueue(chunk);
    for await (const event of reader) {
      begin(event);
      for (const chunk of chunks.show(reader.parts)) controller.enqueue(chunk);
      if (event.kind === 'done' || event.kind === 'aborted')
        for (const chunk of chunks.end(event)) controller.enqueue(chunk);
    }
    controller.close();
  } catch (error) {
    controller.error(error);
  }
}
