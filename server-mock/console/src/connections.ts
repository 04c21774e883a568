/** The open connections of the server, polled while they are shown, and the request to cut one. */

import type { Credentials } from './credentials.js';
import { effect, everyWhileVisible, Signal } from './reactive.js';

const POLL = 3_000;
const LIMIT = 200;

/** A connection, with the field names of the wire. */
export interface OpenConnection {
  readonly client_id: string;
  readonly user_id: string;
  readonly kind: string;
  readonly name?: string;
  readonly transport: string;
  readonly address?: string;
  readonly connected_at: number;
  readonly patterns: readonly string[];
  readonly subscriptions: number;
  readonly queued_bytes: number;
  readonly queue_limit: number;
  readonly stalled?: boolean;
}

/** The received list. */
export interface Listing {
  readonly state: 'asking' | 'listed' | 'forbidden' | 'failed';
  readonly connections: readonly OpenConnection[];
  readonly total: number;
}

const NONE: Listing = { state: 'asking', connections: [], total: 0 };

/** Requests the connections of the chosen topic, or all. */
export class Connections {
  readonly listing: Signal<Listing> = new Signal(NONE);
  private _asked = 0;

  constructor(
    private readonly _http: string,
    private readonly _credentials: Credentials,
    private readonly _topic: Signal<string | undefined>,
    private readonly _shown: () => boolean,
  ) {
    effect(() => {
      void this._topic.value;
      this.listing.value = NONE;
    });
    effect(() => {
      void this._topic.value;
      if (this._shown()) void this.ask();
    });
    everyWhileVisible(POLL, () => {
      if (this._shown()) void this.ask();
    });
  }

  /** Request now; only the answer to the newest request counts. */
  async ask(): Promise<void> {
    this._asked += 1;
    const asked = this._asked;
    const search = new URLSearchParams({ limit: String(LIMIT) });
    const topic = this._topic.peek();
    if (topic !== undefined) search.set('topic', topic);
    const found = await this._get(`${this._http}/v1/connections?${search}`);
    if (asked === this._asked) this.listing.value = found;
  }

  /** Cut a connection. Returns whether it existed. */
  async cut(clientId: string): Promise<boolean> {
    const path = `${this._http}/v1/connections/${encodeURIComponent(clientId)}`;
    const answer = await this._fetch(path, 'DELETE').catch(() => undefined);
    void this.ask();
    return answer?.ok === true;
  }

  private async _get(url: string): Promise<Listing> {
    try {
      const answer = await this._fetch(url, 'GET');
      if (answer.status === 403) return { ...NONE, state: 'forbidden' };
      if (!answer.ok) return { ...this.listing.peek(), state: 'failed' };
      const { connections, total } = (await answer.json()) as Omit<Listing, 'state'>;
      return { state: 'listed', connections, total };
    } catch {
      return { ...this.listing.peek(), state: 'failed' };
    }
  }

  private _fetch(url: string, method: string): Promise<Response> {
    return fetch(url, {
      method,
      headers: { Authorization: `Bearer ${this._credentials.current() ?? ''}` },
      cache: 'no-store',
      credentials: 'omit',
    });
  }
}
