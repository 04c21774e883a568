/** Creates and reads the messages of requests and replies. Pure. */

import { InvalidOption, ReplyError } from '../errors.js';
import { matches } from '../topics.js';
import type { Message, Outgoing } from '../values.js';

/** Prefix of the request's id in the id of its reply, so that only one reply is published. */
const PREFIX = 're_';
const ID_MAX = 128 - PREFIX.length;
const TOPIC_MAX = 255;

const invalid = (field: string, problem: string, remedy: string): InvalidOption =>
  new InvalidOption(problem, { field, remedy });

/** Topic of the replies to the requests that one client publishes to a valid topic. */
export function replyTopic(topic: string, nonce: string): string {
  const name = `${topic}.replies.${nonce}`;
  if (name.length > TOPIC_MAX) {
    throw invalid(
      'replyTo',
      'The topic of the request is too long to hold its replies below it.',
      'Pass `replyTo`, or use a shorter topic.',
    );
  }
  return name;
}

/** Validate the id of a request. */
export function checkRequestId(id: unknown): void {
  if (typeof id !== 'string' || !id || id.length > ID_MAX) {
    const problem = typeof id === 'string' ? `has ${id.length} characters` : 'is not a string';
    throw invalid('id', `\`id\` ${problem}.`, `Pass a string of 1 to ${ID_MAX} characters.`);
  }
}

/** The answer to a request: a result, or an error. */
export function answerTo(request: Message, result: unknown): Outgoing {
  const isError = result instanceof ReplyError;
  const failed = isError && { code: result.code, message: result.message, data: result.data };
  return {
    type: isError ? 'reply.error' : 'reply',
    data: (failed || result) ?? null,
    meta: { in_reply_to: request.id },
    ...(request.ttl && { ttl: request.ttl }),
    ...(request.id.length <= ID_MAX && { id: PREFIX + request.id }),
  } as Outgoing;
}

/** The reply topic of a request; undefined for any other message. */
export function replyToOf({ meta }: Message): string | undefined {
  const name = meta?.['reply_to'];
  return typeof name === 'string' ? name : undefined;
}

/**
 * Whether a reply topic belongs to the request's topic or its sender.
 *
 * A responder may have more permissions than the sender, so a request must not choose an arbitrary
 * topic.
 */
export function isOwnReplyTopic({ topic, sender }: Message, replyTo: string): boolean {
  // By segments: `user.ann.lee.x` belongs to the user `ann`, not to one whose id is `ann.lee`.
  const [head, id, rest] = replyTo.split('.');
  const own = head === 'user' && id === sender?.id && rest !== undefined;
  return own || matches(`${topic}.replies.*`, replyTo);
}

/** Id of the request that a message answers; undefined for any other message. */
export function requestOf({ type, meta }: Message): string | undefined {
  const id = type === 'reply' || type === 'reply.error' ? meta?.['in_reply_to'] : undefined;
  return typeof id === 'string' ? id : undefined;
}

/** Read a reply; throws the error in it. */
export function readReply(reply: Message, topic: string): Message {
  if (reply.type !== 'reply.error') return reply;
  const failure = (reply.data ?? {}) as { code?: unknown; message?: unknown; data?: unknown };
  throw new ReplyError(typeof failure.message === 'string' ? failure.message : undefined, {
    code: typeof failure.code === 'string' && failure.code ? failure.code : undefined,
    topic,
    data: failure.data,
  });
}
