/**
 * Topics whose payloads a schema checks: zod, valibot, arktype, or any other Standard Schema.
 *
 * docs/typed.md is the guide.
 */

import { DEVELOPMENT } from '../build.js';
import { driverOf, type PubSub } from '../client.js';
import { checkNames } from '../settings/checks.js';
import { type OnInvalid, Payloads } from './payloads.js';
import type { InputOf, OutputOf, StandardSchema } from './standard.js';
import { type Client, TypedTopic } from './typed_topic.js';

export type { OnInvalid } from './payloads.js';
export type {
  InputOf,
  OutputOf,
  StandardIssue,
  StandardResult,
  StandardSchema,
} from './standard.js';
export type { TypedSubscription, TypedTopic } from './typed_topic.js';

/** Options of `typedTopic`. */
export interface TypedTopicOptions<Schema extends StandardSchema, Policy extends OnInvalid> {
  /** A Standard Schema, such as `z.object({ sku: z.string() })`. */
  readonly schema: Schema;
  /**
   * What happens to a received message that does not match; default `raise`.
   *
   * - `raise`: the iteration throws `SchemaError`, and continues with the next message when it is
   *   iterated again. With `onMessage`, the error goes to the listeners of `error`.
   * - `skip`: the next message follows, and the error goes to the listeners of `error`, or to the log.
   * - `raw`: the message is delivered with its JSON as `data`.
   */
  readonly onInvalid?: Policy | undefined;
}

/**
 * One topic of a client whose payloads match a schema, in both directions.
 *
 * The client checks what you publish, and sends it unchanged. You receive the output of the schema,
 * with its defaults and transformations.
 *
 * @param topic A topic. For `subscribe` only, it may be a pattern.
 * @throws InvalidOption `schema` is not a Standard Schema, `onInvalid` has an unknown value, or an
 *   option is unknown.
 */
export function typedTopic<
  Topics extends object,
  Schema extends StandardSchema,
  Policy extends OnInvalid = 'raise',
>(
  client: PubSub<Topics>,
  topic: string,
  options: TypedTopicOptions<Schema, Policy>,
): TypedTopic<InputOf<Schema>, 'raw' extends Policy ? unknown : OutputOf<Schema>> {
  if (DEVELOPMENT) checkNames('options', options, ['schema', 'onInvalid']);
  const { schema, onInvalid } = options;
  const { listeners } = driverOf(client);
  type Data = 'raw' extends Policy ? unknown : OutputOf<Schema>;
  const payloads = new Payloads<Data>(
    schema as StandardSchema<unknown, Data>,
    onInvalid ?? 'raise',
    (error) => listeners.report(error),
  );
  return new TypedTopic(client as unknown as Client, topic, payloads);
}
