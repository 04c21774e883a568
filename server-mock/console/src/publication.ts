/** What is in the publish box, checked before anything is sent. */

import type { Outgoing, PublishOptions } from '@hanzoai/pubsub';

import { findSlip } from './json_place.js';

/** The fields as typed. */
export interface Draft {
  readonly topic: string;
  readonly type: string;
  readonly data: string;
  readonly ttl: string;
  readonly id: string;
}

/** What is wrong, and in which field. */
export interface Slip {
  readonly field: keyof Draft;
  readonly message: string;
}

/** The data as JSON; a slip says where it stops being that. */
export function readData(text: string): { readonly data: unknown } | Slip {
  if (!text.trim()) return { field: 'data', message: 'Data is empty. Any JSON will do: {}' };
  try {
    return { data: JSON.parse(text) as unknown };
  } catch {
    const { line, column, expected } = findSlip(text) ?? {
      line: 1,
      column: 1,
      expected: 'a value',
    };
    const message = `Not JSON: line ${line}, column ${column} should be ${expected}.`;
    return { field: 'data', message };
  }
}

/**
 * What to publish, or the first slip.
 *
 * @param checkTopic Throws the SDK's words on a topic that is none.
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
    return { field: 'ttl', message: 'A whole number of seconds; 0 keeps nothing in history.' };
  }
  const data = readData(draft.data);
  if ('field' in data) return data;
  return {
    topic,
    message: { data: data.data, type: draft.type.trim() || undefined },
    options: { ttl: ttl ? Number(ttl) : undefined, id: draft.id.trim() || undefined },
  };
}
