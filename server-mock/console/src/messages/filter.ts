/** Filters entries by type and text. */

import type { Entry } from './buffer.js';

/** Maximum characters of the data of a message that are searched. */
const SEARCHED = 20_000;

const texts = new WeakMap<Entry, string>();

/** Whether an entry has this type and contains this text; the search ignores case. */
export function isFound(entry: Entry, type: string | undefined, query: string): boolean {
  // Keep gaps: the missing messages may be of any type.
  if (entry.kind === 'gap') return !query || entry.topic.toLowerCase().includes(query);
  if (type !== undefined && entry.message.type !== type) return false;
  return !query || textOf(entry).includes(query);
}

/** The types of the messages among the entries, sorted by name. */
export function typesOf(entries: readonly Entry[], limit: number): readonly string[] {
  const types = new Set<string>();
  for (const entry of entries) {
    if (entry.kind === 'message' && types.size < limit) types.add(entry.message.type);
  }
  return [...types].sort();
}

function textOf(entry: Extract<Entry, { kind: 'message' }>): string {
  const known = texts.get(entry);
  if (known !== undefined) return known;
  const { topic, type, data, id } = entry.message;
  const json = (JSON.stringify(data) ?? '').slice(0, SEARCHED);
  const text = `${topic}\n${type}\n${id}\n${json}`.toLowerCase();
  texts.set(entry, text);
  return text;
}
