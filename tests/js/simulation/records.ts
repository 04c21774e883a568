/** What a server keeps: messages by topic, connections, and what subscriptions began with. */

import type { Envelope, ServerFrame } from '../../../js/src/generated/wire.js';
import { matches } from '../../../js/src/topics.js';

/** A message that was published. */
export interface Entry {
  readonly message: Envelope;
  /** Its place among all of its topic, over resets of the log. */
  readonly index: number;
  /** Which log of the topic holds it. */
  readonly log: number;
  /** When its retention ends, if it does. */
  readonly until: number | undefined;
  /** History has let go of it. */
  gone: boolean;
}

/** What a subscription that was answered began with. */
export interface Start {
  /** How many messages there were, by topic. */
  readonly counts: ReadonlyMap<string, number>;
  /** The patterns in force. */
  readonly granted: readonly string[];
  /** When it was. */
  readonly at: number;
  /** The messages of a replay that was asked for by their number. */
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

/** The server's side of one connection. */
export class Connection {
  open = true;
  authenticated = false;
  readonly patterns = new Set<string>();
  /** Patterns with presence. */
  readonly watched = new Set<string>();
  /** By the `ref` of the request, or its topics. */
  readonly starts = new Map<string, Start>();
  expiry = 0;
  /** A plain peer answers in the order of the requests. */
  answersAt = 0;
  /** Which event stream; one takes the place of another. */
  stream = 0;

  constructor(
    readonly send: (frame: ServerFrame) => void,
    readonly close: (code: number, reason: string, retryAfter?: number) => void,
  ) {}

  takes(topic: string): boolean {
    return covers(this.patterns, topic);
  }
}

/** Whether any of the patterns takes the topic. */
export function covers(patterns: Iterable<string>, topic: string): boolean {
  for (const pattern of patterns) if (matches(pattern, topic)) return true;
  return false;
}

/** They are too old. */
export function letGo(entries: readonly Entry[]): void {
  for (const entry of entries) entry.gone = true;
}
