/**
 * Requests over topics: a program publishes a request, and a responder publishes the reply.
 *
 * docs/requests.md is the guide.
 */

import type { PubSub } from '../client.js';
import type { AnyPayload, Message } from '../values.js';
import { type Client, type RequestOptions, requesterOf } from './requester.js';
import { type RequestHandler, Responder, type RespondOptions } from './responder.js';

export type { RequestOptions } from './requester.js';
export type { RequestHandler, Responder, RespondOptions } from './responder.js';

/**
 * Publish a request, and wait for the reply of a responder.
 *
 * The client subscribes once to each reply topic and stays subscribed. Request and reply stay in
 * history for the timeout, so neither is lost if a side reconnects.
 *
 * @param topic A topic without wildcards.
 * @param data JSON of the request.
 * @returns The reply; `data` is what the handler returned.
 * @throws RequestTimeout No reply arrived in time: no responder is subscribed, or it is too slow.
 * @throws ReplyError The responder answered with an error; `code` is its code.
 * @throws PermissionDenied You may not publish to the topic, or not read the reply topic.
 * @throws InvalidTopic A topic is not valid or has a wildcard.
 * @throws InvalidOption `id` is in use or too long.
 */
export async function request<Topics extends object, Data = AnyPayload>(
  client: PubSub<Topics>,
  topic: string,
  data: unknown,
  options: RequestOptions = {},
): Promise<Message<Data>> {
  const requester = requesterOf(client as unknown as Client);
  return (await requester.request(topic, data, options)) as unknown as Message<Data>;
}

/**
 * Answer the requests of topics with what a handler returns, and wait until the server has answered
 * the subscription.
 *
 * If several responders answer one request, the first reply counts. `request.id` is the same for
 * each retry of a request, so a handler can recognize work that is done.
 *
 * @param topics A pattern or several.
 * @param handler Called with the request; returns JSON, or a promise of it. Throw `ReplyError` to
 *   answer with an error.
 * @throws PermissionDenied You may not read any of the topics.
 */
export async function respond<Topics extends object>(
  client: PubSub<Topics>,
  topics: string | readonly string[],
  handler: RequestHandler,
  options: RespondOptions = {},
): Promise<Responder> {
  return new Responder(client as unknown as Client, handler, options).open(topics);
}
