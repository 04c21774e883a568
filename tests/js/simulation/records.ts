/**
 * The state of the simulated server: messages by topic, connections, and the start of each
 * subscription.
 */

import type { Envelope, ServerFrame } from '../../../js/src/generated/wire.js';
import { matches } from '../../../js/src/topics.js';

/** A published message. */
export interface Entry {
  readonly message: Envelope;
  /** Its index among all messages of its topic, also across resets of the log. */
  readonly index: number;
  /** The number of its log. */
  readonly log: number;
  /** End of its retention, if it has one. */
  readonly until: number | undefined;
  /** Whether the history has dropped it. */
  gone: boolean;
}

/** The start of a subscription that was answered. */
export interface Start {
  /** Number of messages by topic at that time. */
  readonly counts: ReadonlyMap<string, number>;
  /** The accepted patterns. */
  readonly granted: readonly string[];
  /** The time. */
  readonly at: number;
  /** The messages of a replay that was limited by number. */
  readonly offered: readonly Envelope[];
}

/** The retained messages of one topic. */
export class Log {
  next: number;
  entries: Entry[] = [];

  constructor(
    readonly base: number,
    readonly number: number,
  ) {
    this.next = base;
  }
}

/** One connection, on the server's side. */
export class Connection {
  open = true;
  authenticated = false;
  readonly patterns = new Set<string>();
  /** Patterns with presence. */
  readonly watched = new Set<string>();
  /** By the `ref` of the request, or its topics. */
  readonly starts = new Map<string, Start>();
  expiry = 0;
  /** Time of the last answer, because a plain peer answers in the order of the requests. */
  answersAt = 0;
  /** Number of the event stream; a new one replaces the last one. */
  stream = 0;

  constructor(
    readonly send: (frame: ServerFrame) => void,
    readonly close: (code: number, reason: string, retryAfter?: number) => void,
  ) {}

  takes(topic: string): boolean {
    return covers(this.patterns, topic);
  }
}

/** Whether one of the patterns matches the topic. */
export function covers(patterns: Iterable<string>, topic: string): boolean {
  for (const pattern of patterns) if (matches(pattern, topic)) return true;
  return false;
}

/** Mark messages as dropped. */
export function letGo(entries: readonly Entry[]): void {
  for (const entry of entries) entry.gone = true;
}
