/** State that survives a reload of the page: the client id, and the positions of subscriptions. */

import type { Request } from '../session/cursor.js';
import { RECONNECTS } from '../session/lifecycle.js';
import type { Background } from './background.js';
import type { Connection } from './connection.js';
import type { Client } from './environment.js';
import type { Inbox } from './inbox.js';

/** The place where a subscription was left. */
interface Left extends Partial<Request> {
  readonly after: Readonly<Record<string, number>>;
}

/** The client of the page. */
interface Recovered extends Client {
  readonly _background: Background | undefined;
  readonly _connection: Connection | undefined;
}

interface Kept {
  readonly at: number;
  readonly clientId?: string | undefined;
  /** By patterns. */
  readonly places: Readonly<Record<string, Partial<Request>>>;
}

const page: Partial<Pick<Window, 'sessionStorage' | 'addEventListener'>> = globalThis;

/**
 * Keeps the client in `sessionStorage` between the end of one page and the beginning of the next.
 *
 * It is written when the page is left, and removed when the next page starts. A tab that is
 * duplicated in the meantime copies a storage without it, and becomes a separate client.
 */
export class Recovery {
  private readonly _key: string;
  private readonly _kept: Kept | undefined;

  constructor(private readonly _client: Recovered) {
    const { socketUrl, name, recover, suspendAfter } = _client.options;
    this._key = `hanzo-pubsub ${JSON.stringify([socketUrl, name, recover])}`;
    const kept = this._take();
    if (kept && Math.abs(_client.clock.wallMs() - kept.at) <= suspendAfter) this._kept = kept;
    _client.session.lifecycle._clientId = this._kept?.clientId;
    // Without the signal, the page would keep every client that has ended.
    const until = { signal: _client.over };
    try {
      page.addEventListener?.('pagehide', () => this._leave(), until);
      page.addEventListener?.('pageshow', (event) => this._return(event), until);
    } catch {
      // The page of a simulated browser may reject the signal. It is never left.
    }
  }

  /** The positions of the previous page for a subscription to these patterns. */
  place(patterns: readonly string[]): Partial<Request> {
    return this._kept?.places[keyOf(patterns)] ?? {};
  }

  /** The page is left: store all positions, and keep the presence. */
  private _leave(): void {
    const { clock, _background: background, session, peer } = this._client;
    const places: Record<string, Left> = {};
    for (const [sub, inbox] of background?.deliveries.inboxes ?? []) {
      const state = session.operations.subscriptions.all.get(sub);
      const { since, after } = state?.cursor.request() ?? {};
      const key = keyOf(inbox.topics);
      const before = places[key];
      const place = { since, after: unread(inbox, after) };
      places[key] = before ? least(before, place) : place;
    }
    const clientId = peer?.client_id ?? this._kept?.clientId;
    const kept: Kept = { at: clock.wallMs(), clientId, places };
    try {
      page.sessionStorage?.setItem(this._key, JSON.stringify(kept));
    } catch {
      // The storage is full or not allowed: the next page starts as another client.
    }
    this._client._connection?.close(RECONNECTS);
  }

  /** The page is restored from the browser's cache. */
  private _return({ persisted }: PageTransitionEvent): void {
    if (!persisted) return;
    this._take();
    if (this._client._connection)
      this._client.dropped({ reason: 'The page was cached.', again: true });
  }

  private _take(): Kept | undefined {
    try {
      const { sessionStorage } = page;
      const text = sessionStorage?.getItem(this._key);
      sessionStorage?.removeItem(this._key);
      return text ? (JSON.parse(text) as Kept) : undefined;
    } catch {
      return undefined;
    }
  }
}

function keyOf(patterns: readonly string[]): string {
  return JSON.stringify([...new Set(patterns)].sort());
}

/** The positions, lowered to those before the entries that the program has not taken yet. */
function unread(inbox: Inbox, after: Request['after'] = {}): Left['after'] {
  // A Map, because a topic may have the name of a property that every object has.
  const marks = new Map(Object.entries(after));
  for (const entry of inbox.waiting) {
    const isMessage = 'id' in entry;
    if (!isMessage && entry.kind === 'presence') continue;
    const { topic } = isMessage ? entry : entry.gap;
    const seq = isMessage ? entry.seq : entry.gap.from;
    const mark = marks.get(topic);
    if (seq !== undefined && mark !== undefined) marks.set(topic, Math.min(mark, seq - 1));
  }
  return Object.fromEntries(marks);
}

/** The lower positions of two subscriptions to the same patterns. */
function least(one: Left, other: Left): Left {
  const after = new Map(Object.entries(one.after));
  for (const [topic, seq] of Object.entries(other.after)) {
    after.set(topic, Math.min(seq, after.get(topic) ?? seq));
  }
  // An undefined start is sorted to the end.
  const [since] = ([one.since, other.since] as number[]).sort((a, b) => a - b);
  return { since, after: Object.fromEntries(after) };
}
