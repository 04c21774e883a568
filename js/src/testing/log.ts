/**
 * The bounded log of each topic: append, number, trim, replay (HIP-56 Message History and Replay).
 */

import { compact } from '../compact.js';
import type { HistoryPage } from '../generated/http.js';
import type { Envelope } from '../generated/wire.js';
import type { Published } from '../values.js';
import { Problem } from './problem.js';
import type { Draft } from './requests.js';
import type { ServerSettings } from './settings.js';
import { TopicTrie } from './topic_trie.js';

/**
 * The first number of a log is derived from the time, so that it exceeds the numbers of a lost log.
 */
const SEQ_PER_MS = 1_000;
/** Maximum number of logs. The log with the oldest last write is dropped first. */
const TOPICS_MAX = 10_000;
/** Maximum ids that are remembered for messages that left their log or were not retained. */
const REMEMBERED_IDS = 100_000;
const REMEMBERED_MS = 600_000;
/** Maximum messages of one replay. */
const REPLAY_MESSAGES = 10_000;

/** A published message. */
export interface Entry {
  readonly message: Envelope;
  /** The message as JSON. */
  readonly body: string;
  /** End of its retention, in Unix milliseconds. */
  readonly expires: number;
}

/** The first answer to a subscription: messages and positions. */
export interface Replay {
  readonly entries: readonly Entry[];
  readonly positions: Readonly<Record<string, number>>;
  readonly truncated: readonly string[];
  readonly reset: readonly string[];
}

/** The history that a subscription asks for. */
export interface Wanted {
  readonly since?: number | undefined;
  readonly after?: Readonly<Record<string, number>> | undefined;
  readonly history?: number | undefined;
}

class Log {
  last: number;
  lastAt = 0;
  /** Timestamp of the newest message that has left the log. */
  lostAt = 0;
  entries: Entry[] = [];

  constructor(readonly start: number) {
    this.last = start - 1;
  }

  /** Remove the messages whose retention has ended, and return them. */
  expire(now: number): readonly Entry[] {
    const gone = this.entries.filter(({ expires }) => expires <= now);
    for (const { message } of gone) this.lostAt = Math.max(this.lostAt, message.timestamp);
    if (gone.length) this.entries = this.entries.filter(({ expires }) => expires > now);
    return gone;
  }
}

/** All logs. */
export class Store {
  private readonly _logs = new Map<string, Log>();
  private readonly _seen = new Map<string, Entry>();
  /**
   * A lower bound for new logs, at least 2 above every number of a dropped log, so that clients see
   * the gap.
   */
  private _floor = 0;
  /** Start numbers promised to subscribers of topics that have no messages yet. */
  private readonly _starts = new Map<string, number>();

  constructor(private readonly _settings: ServerSettings) {}

  /**
   * Assign a number to a message and retain it.
   *
   * @param id The id of the publisher, or a new one.
   * @returns The entry to deliver; for a known id, the first answer.
   * @throws Problem `conflict`: the id was used for a different message.
   */
  append(draft: Draft, id: string, sender: Envelope['sender'], now: number): Entry | Published {
    const known = draft.id === undefined ? undefined : this._known(draft, draft.id, sender, now);
    if (known) return known;
    const { historyMaxAge, historyMaxMessages } = this._settings;
    const seconds = Math.min(draft.ttl ?? historyMaxAge, historyMaxAge);
    if (draft.ttl === 0) {
      const entry = entryOf(draft, id, sender, now, undefined, now);
      if (draft.id !== undefined) this._remember(entry);
      return entry;
    }
    const log = this._logs.get(draft.topic) ?? this._begin(draft.topic, now);
    this._logs.delete(draft.topic);
    this._logs.set(draft.topic, log);
    log.last += 1;
    log.lastAt = now;
    const entry = entryOf(draft, id, sender, now, log.last, now + seconds * 1000);
    log.entries.push(entry);
    this._expire(log, now);
    while (log.entries.length > historyMaxMessages) this._dropFirst(log);
    return entry;
  }

  /** The replay for a new subscription. */
  replay(patterns: readonly string[], wanted: Wanted, now: number, mayRead: MayRead): Replay {
    const { since, after = {}, history } = wanted;
    const trie = new TopicTrie<string>();
    for (const pattern of patterns) trie.insert(pattern, pattern);
    let entries: Entry[] = [];
    const truncated: string[] = [];
    const reset = Object.keys(after).filter(
      // Of a topic that the subscriber may not read, even this shows whether it has messages.
      (topic) => trie.match(topic).length && mayRead(topic) && this._isForeign(topic, after, now),
    );
    const positions: Record<string, number> = {};
    for (const [topic, log] of this._logs) {
      if (!trie.match(topic).length || !mayRead(topic)) continue;
      positions[topic] = log.last;
      const mark = Object.hasOwn(after, topic) ? after[topic] : undefined;
      if (mark === undefined && since === undefined && history === undefined) continue;
      const read = this._read(log, now, mark, since, history);
      entries.push(...read.entries);
      if (read.short) truncated.push(topic);
      if (read.restarted) reset.push(topic);
    }
    for (const topic of patterns) {
      if (topic.includes('*') || this._logs.has(topic)) continue;
      if (Object.hasOwn(after, topic) && !reset.includes(topic)) continue;
      const start = this._startOf(topic, now);
      this._starts.set(topic, start);
      positions[topic] = start - 1;
    }
    entries.sort((one, other) => one.message.timestamp - other.message.timestamp);
    if (entries.length > REPLAY_MESSAGES) {
      const cut = new Set(entries.slice(0, -REPLAY_MESSAGES).map(({ message }) => message.topic));
      truncated.push(...[...cut].filter((topic) => !truncated.includes(topic)));
      entries = entries.slice(-REPLAY_MESSAGES);
    }
    return { entries, positions, truncated, reset };
  }

  /**
   * One page of history: the newest messages, those before an id or a position, or those after one.
   */
  page(topic: string, query: PageQuery, limit: number, now: number): HistoryPage {
    const { since, before, after } = query;
    const log = this._logs.get(topic);
    if (!log) return { messages: [], has_more: false };
    const read = this._read(log, now, after, since, undefined);
    let { entries } = read;
    if (typeof before === 'number') {
      entries = entries.filter(({ message }) => (message.seq ?? 0) < before);
    } else if (after === undefined && before !== undefined) {
      const place = entries.findIndex(({ message }) => message.id === before);
      entries = entries.slice(0, Math.max(0, place));
    }
    const chosen = after === undefined ? entries.slice(-limit) : entries.slice(0, limit);
    let { short, restarted } = read;
    if (after !== undefined) {
      const mark = restarted ? log.start - 1 : after;
      short = chosen.length < (chosen.at(-1)?.message.seq ?? log.last) - mark;
      // 0 means the start of every log, so it never belongs to another log.
      restarted &&= after > 0;
    }
    return compact<HistoryPage>({
      messages: chosen.map(({ message }) => message),
      has_more: entries.length > chosen.length,
      position: log.last,
      truncated: short || undefined,
      reset: restarted || undefined,
    });
  }

  /**
   * The topics with a log, each with its number of messages, its position and the time of its last
   * write.
   */
  reports(now: number): Map<string, { messages: number; position: number; last: number }> {
    const pairs = [...this._logs].map(([topic, log]) => {
      this._expire(log, now);
      const { last: position, lastAt: last } = log;
      return [topic, { messages: log.entries.length, position, last }] as const;
    });
    return new Map(pairs);
  }

  /** Drop retained messages, as trimming does. `positions` also restarts the numbering. */
  evict(topic: string | undefined, positions: boolean): void {
    for (const name of topic === undefined ? [...this._logs.keys()] : [topic]) {
      if (positions) this._starts.delete(name);
      const log = this._logs.get(name);
      if (!log) continue;
      while (log.entries.length) this._dropFirst(log);
      if (positions) this._end(name, log);
    }
    if (positions) this._seen.clear();
    if (positions && topic === undefined) this._starts.clear();
  }

  private _read(
    log: Log,
    now: number,
    after: number | undefined,
    since: number | undefined,
    newest: number | undefined,
  ): { entries: Entry[]; short: boolean; restarted: boolean } {
    this._expire(log, now);
    let { entries } = log;
    const restarted = after !== undefined && (after < log.start - 1 || after > log.last);
    let short = false;
    if (after !== undefined) {
      const mark = restarted ? log.start - 1 : after;
      entries = entries.filter(({ message }) => (message.seq ?? 0) > mark);
      short = entries.length < log.last - mark;
    } else if (since !== undefined) {
      entries = entries.filter(({ message }) => message.timestamp > since);
      short = log.lostAt > since;
    }
    if (newest !== undefined && newest < entries.length) {
      entries = entries.slice(entries.length - newest);
      short ||= after !== undefined;
    }
    return { entries, short, restarted };
  }

  private _known(
    draft: Draft,
    id: string,
    sender: Envelope['sender'],
    now: number,
  ): Published | undefined {
    const log = this._logs.get(draft.topic);
    const found =
      log?.entries.find(
        ({ message }) =>
          message.id === id &&
          message.sender?.id === sender?.id &&
          message.sender?.type === sender?.type,
      ) ?? this._seen.get(keyOf(draft.topic, sender, id));
    if (!found) return undefined;
    const { timestamp, seq } = found.message;
    const isKept = log?.entries.includes(found);
    if (!isKept && timestamp + REMEMBERED_MS <= now) return undefined;
    const again = entryOf(draft, id, sender, timestamp, seq, 0);
    if (again.body === found.body) return { id, timestamp, seq, duplicate: true };
    const detail = 'you have used this id for another message';
    throw new Problem('conflict', detail, { topic: draft.topic, field: 'id' });
  }

  /** The first position of a topic without a log. */
  private _startOf(topic: string, now: number): number {
    return this._starts.get(topic) ?? Math.max(now * SEQ_PER_MS, this._floor);
  }

  /**
   * Whether there is no log, and a new one would begin at or below this position: it is of a clock
   * that was ahead. Its client would take the messages of the new log for known ones.
   */
  private _isForeign(topic: string, after: Wanted['after'], now: number): boolean {
    return !this._logs.has(topic) && (after?.[topic] ?? 0) >= this._startOf(topic, now);
  }

  private _begin(topic: string, now: number): Log {
    for (const [oldest, log] of this._logs) {
      if (this._logs.size < TOPICS_MAX) break;
      this._end(oldest, log);
    }
    const start = this._startOf(topic, now);
    this._starts.delete(topic);
    return new Log(start);
  }

  private _end(topic: string, log: Log): void {
    this._floor = Math.max(this._floor, log.last + 2);
    this._logs.delete(topic);
  }

  private _expire(log: Log, now: number): void {
    for (const entry of log.expire(now)) this._remember(entry);
  }

  private _dropFirst(log: Log): void {
    const entry = log.entries.shift();
    if (!entry) return;
    log.lostAt = entry.message.timestamp;
    this._remember(entry);
  }

  private _remember(entry: Entry): void {
    this._seen.set(keyOf(entry.message.topic, entry.message.sender, entry.message.id), entry);
    for (const key of this._seen.keys()) {
      if (this._seen.size <= REMEMBERED_IDS) break;
      this._seen.delete(key);
    }
  }
}

/** Whether a user may read a topic. */
export type MayRead = (topic: string) => boolean;

/** Selects a page of history. */
export interface PageQuery {
  readonly since?: number | undefined;
  /** The id or the position of the message that the page ends before. */
  readonly before?: string | number | undefined;
  readonly after?: number | undefined;
}

function keyOf(topic: string, sender: Envelope['sender'], id: string): string {
  return JSON.stringify([topic, sender?.type, sender?.id, id]);
}

function entryOf(
  { topic, type, data, ttl, meta }: Draft,
  id: string,
  sender: Envelope['sender'],
  timestamp: number,
  seq: number | undefined,
  expires: number,
): Entry {
  const fields = { id, topic, type, data, sender, timestamp, ttl, seq, meta };
  const message = compact<Envelope>(fields);
  return { message, body: JSON.stringify(message), expires };
}
