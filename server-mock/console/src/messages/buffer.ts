/** The newest messages and gaps in order of time, up to a limit. */

import type { Gap, Message } from '@hanzoai/pubsub';

/** An entry of the list. */
export type Entry =
  | {
      readonly kind: 'message';
      readonly key: number;
      readonly at: number;
      readonly topic: string;
      readonly message: Message;
      /** When a subscription received it, Unix ms of this machine; undefined for older history. */
      readonly arrived?: number | undefined;
      /** When the connection that delivered it was established, Unix ms of this machine. */
      readonly since?: number | undefined;
    }
  | {
      readonly kind: 'gap';
      readonly key: number;
      readonly at: number;
      readonly topic: string;
      readonly gap: Gap;
    };

/** An event of a subscription. */
export type Incoming =
  | {
      readonly kind: 'message';
      readonly message: Message;
      readonly arrived?: number;
      readonly since?: number;
    }
  | { readonly kind: 'gap'; readonly gap: Gap };

/** What identifies a message: senders share ids, and a message with `ttl` 0 has no position. */
export function identityOf({ topic, id, seq, sender }: Message): string {
  return JSON.stringify([topic, id, seq ?? sender]);
}

/** Holds at most `capacity` entries. A message that several subscriptions deliver appears once. */
export class MessageBuffer {
  entries: Entry[] = [];
  private readonly _known = new Set<string>();
  private _gaps = new Set<string>();
  private _keys = 0;

  constructor(readonly capacity: number) {}

  /**
   * Add the events since the last call.
   *
   * A gap is placed before the next message of its topic, or at the end if there is none.
   *
   * @returns The entries that were removed to stay within the capacity.
   */
  add(batch: readonly Incoming[]): Entry[] {
    const fresh: Entry[] = [];
    const open = new Map<string, Gap[]>();
    for (const each of batch) {
      if (each.kind === 'gap') {
        this._open(open, each.gap);
        continue;
      }
      const { message, arrived, since } = each;
      const identity = identityOf(message);
      if (this._known.has(identity)) continue;
      this._known.add(identity);
      const { timestamp: at, topic } = message;
      for (const gap of open.get(topic) ?? []) fresh.push(this._gap(gap, at));
      open.delete(topic);
      fresh.push({ kind: 'message', key: this._next(), at, topic, message, arrived, since });
    }
    const last = (fresh.at(-1) ?? this.entries.at(-1))?.at ?? 0;
    for (const gaps of open.values()) for (const gap of gaps) fresh.push(this._gap(gap, last));
    this._join(fresh);
    return this._trim();
  }

  /** Whether it contains a message. */
  has(message: Message): boolean {
    return this._known.has(identityOf(message));
  }

  /** A key that no entry has used. */
  nextKey(): number {
    return this._next();
  }

  /** Remove everything. */
  clear(): void {
    this.entries = [];
    this._known.clear();
    this._gaps.clear();
  }

  private _open(open: Map<string, Gap[]>, gap: Gap): void {
    const name = `${gap.topic} ${gap.from} ${gap.to} ${gap.reason}`;
    if (gap.from !== undefined && this._gaps.has(name)) return;
    if (this._gaps.size > 1_000) this._gaps = new Set();
    this._gaps.add(name);
    const known = open.get(gap.topic);
    if (known) known.push(gap);
    else open.set(gap.topic, [gap]);
  }

  private _gap(gap: Gap, at: number): Entry {
    return { kind: 'gap', key: this._next(), at, topic: gap.topic, gap };
  }

  private _next(): number {
    this._keys += 1;
    return this._keys;
  }

  private _join(fresh: readonly Entry[]): void {
    let last = this.entries.at(-1)?.at ?? 0;
    let inOrder = true;
    for (const entry of fresh) {
      if (entry.at < last) inOrder = false;
      last = entry.at;
      this.entries.push(entry);
    }
    // A replay arrives topic by topic. The sort is stable, so messages of one millisecond keep
    // their order.
    if (!inOrder) this.entries.sort((a, b) => a.at - b.at);
  }

  private _trim(): Entry[] {
    const gone = this.entries.splice(0, Math.max(0, this.entries.length - this.capacity));
    for (const entry of gone) {
      if (entry.kind === 'message') this._known.delete(identityOf(entry.message));
    }
    return gone;
  }
}
