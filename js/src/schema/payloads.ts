/**
 * Checks payloads of one topic with its schema, and applies the policy for those that do not match.
 */

import { InvalidOption, SchemaError } from '../errors.js';
import type { Message, Outgoing } from '../values.js';
import type { StandardIssue, StandardSchema } from './standard.js';

/** Policy for a received message that does not match; see `typedTopic`. */
export type OnInvalid = 'raise' | 'skip' | 'raw';

/** Messages of this type change the sender's presence; their data is not a payload of the topic. */
const PRESENCE = 'presence.update';

/** Maximum fields in an error. */
const SHOWN = 3;

/** @internal Reads and checks the payloads of one topic. */
export class Payloads<Data> {
  /**
   * @param _report Receives the error of a skipped message.
   * @throws InvalidOption It is not a Standard Schema, or the policy is unknown.
   */
  constructor(
    private readonly _schema: StandardSchema<unknown, Data>,
    private readonly _onInvalid: OnInvalid,
    private readonly _report: (error: Error) => void,
  ) {
    if (typeof _schema?.['~standard']?.validate !== 'function') {
      throw new InvalidOption('`schema` is not a Standard Schema.', {
        remedy: 'Pass a schema of zod 3.24, valibot 1, arktype 2 or later.',
        field: 'schema',
      });
    }
    if (!['raise', 'skip', 'raw'].includes(_onInvalid)) {
      throw new InvalidOption('`onInvalid` has an unknown value.', {
        remedy: "Pass 'raise', 'skip' or 'raw'.",
        field: 'onInvalid',
      });
    }
  }

  /**
   * The message with the schema's output as its payload; undefined for one to skip.
   *
   * @throws SchemaError The payload does not match, and the policy is `raise`.
   */
  async read(message: Message): Promise<Message<Data> | undefined> {
    const { id, topic, data } = message;
    const result = await this._schema['~standard'].validate(data);
    if (!result.issues) return { ...message, data: result.value };
    if (this._onInvalid === 'raw') return message as Message<Data>;
    const error = mismatch(`Message ${id} on \`${topic}\``, topic, data, result.issues, id);
    if (this._onInvalid === 'raise') throw error;
    this._report(error);
    return undefined;
  }

  /**
   * Check a message before it is published.
   *
   * @throws SchemaError Its payload does not match.
   */
  async check(topic: string, message: Outgoing): Promise<void> {
    if (!message || !('data' in message) || message.type === PRESENCE) return;
    const { issues } = await this._schema['~standard'].validate(message.data);
    if (issues) throw mismatch(`A publish to \`${topic}\``, topic, message.data, issues);
  }
}

/** The error of a payload, without the texts of libraries, which may contain values. */
function mismatch(
  subject: string,
  topic: string,
  data: unknown,
  issues: readonly StandardIssue[],
  id?: string,
): SchemaError {
  const fields = [...new Map(issues.map((issue) => locate(data, issue)))];
  const named = fields.slice(0, SHOWN).map(([field, found]) => `\`${field}\` is ${found}`);
  const more = fields.length - SHOWN;
  const rest = more > 0 ? `; and ${more} more` : '';
  const text = `${subject} does not match its schema: ${named.join('; ')}${rest}.`;
  const error = new SchemaError(text, { topic, field: fields[0]?.[0], id });
  // Not enumerable, so that loggers do not print it.
  return Object.defineProperty(error, 'issues', { value: issues });
}

/** The path of the invalid member, and its value. */
function locate(data: unknown, { path = [] }: StandardIssue): [field: string, found: string] {
  let field = 'data';
  let value = data;
  for (const part of path) {
    const key = typeof part === 'object' ? part.key : part;
    field += typeof key === 'number' ? `[${key}]` : `.${String(key)}`;
    value = (value as Record<PropertyKey, unknown> | null | undefined)?.[key];
  }
  return [field, describe(value)];
}

function describe(value: unknown): string {
  if (value === undefined) return 'missing';
  const type = Array.isArray(value) ? 'array' : typeof value;
  const kind = value === null ? 'null' : `${/^[ao]/.test(type) ? 'an' : 'a'} ${type}`;
  return `${kind}, which is not valid`;
}
