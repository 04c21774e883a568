/** The content of the publish form, validated before it is sent. */

import type { Outgoing, PublishOptions } from '@hanzoai/pubsub';

import { findSlip } from './json_place.js';
import { isRounded, pieces } from './messages/json_text.js';

/** The fields as the user typed them. */
export interface Draft {
  readonly topic: string;
  readonly type: string;
  readonly data: string;
  readonly ttl: string;
  readonly id: string;
}

/** The problem, and the field that has it. */
export interface Slip {
  readonly field: keyof Draft;
  readonly message: string;
}

/** Parse the data as JSON; an error names its position. */
export function readData(text: string): { readonly data: unknown } | Slip {
  if (!text.trim()) return { field: 'data', message: 'Data is empty. Enter JSON, for example {}.' };
  try {
    const data = JSON.parse(text) as unknown;
    const large = pieces(text).find(isRounded);
    if (!large) return { data };
    const message = `Browsers would round ${large.text}. Enter it as text, in double quotes, or publish it with hanzo-pubsub.`;
    return { field: 'data', message };
  } catch {
    const { line, column, expected } = findSlip(text) ?? {
      line: 1,
      column: 1,
      expected: 'a value',
    };
    const message = `Not JSON: expected ${expected} at line ${line}, column ${column}.`;
    return { field: 'data', message };
  }
}

/**
 * The message to publish, or the first problem.
 *
 * @param checkTopic Throws the error of the SDK for an invalid topic.
 */
export function readDraft(
  draft: Draft,
  checkTopic: (topic: string) => unknown,
): { readonly topic: string; readonly message: Outgoing; readonly options: PublishOptions } | Slip {
  const topic = draft.topic.trim();
  try {
    checkTopic(topic);
  } catch (error) {
    const { message, remedy } = error as { message: string; remedy?: string };
    return { field: 'topic', message: [message, remedy].filter(Boolean).join(' ') };
  }
  const ttl = draft.ttl.trim();
  if (ttl && !/^\d{1,9}$/.test(ttl)) {
    return {
      field: 'ttl',
      message: 'Enter a whole number of seconds. With 0, the history does not retain the message.',
    };
  }
  const data = readData(draft.data);
  if ('field' in data) return data;
  return {
    topic,
    message: { data: data.data, type: draft.type.trim() || undefined },
    options: { ttl: ttl ? Number(ttl) : undefined, id: draft.id.trim() || undefined },
  };
}
