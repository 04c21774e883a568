/**
 * What a session does otherwise where the server knows HIP-56 and little more.
 *
 * Such a server echoes no `ref`, so its answers are matched by their topics and their order; it may
 * acknowledge no publish, number no message, publish an id twice, or take no batch.
 */

import * as LIMITS from '../../generated/limits.js';
import type {
  ClientFrame,
  ErrorFrame,
  PublishedFrame,
  PublishResult,
  SubscribedFrame,
} from '../../generated/wire.js';
import type { Loose } from '../../wire/compact.js';
import type { Cursor, SeqCursor } from '../cursor.js';
import type { Subscribe } from '../events.js';
import type { Join } from '../join.js';
import type { Lifecycle } from '../lifecycle.js';
import type { Entry } from '../outbox.js';
import type { Rare } from '../rare.js';
import { gap, IdCursor, type Standing } from './id_cursor.js';

/** Requests remembered; a peer that echoes no `ref` may owe answers for ever. */
const MAX_ASKS = 10_000;

/** Topics remembered of publishes that have no answer but an `error` without a `ref`. */
const MAX_BLIND = 1_000;

/** Times that an `error` may be about a publish instead, before it is about the subscription; once
 * where it names a topic of the subscription. */
const MAX_DOUBTS = 5;

/** Codes that cannot be the answer to a `subscribe`. */
const OF_PUBLISH: readonly string[] = [
  'rate_limited',
  'payload_too_large',
  'invalid_payload',
  'conflict',
  'slow_consumer',
];

interface Ask {
  readonly join: Join | undefined;
  readonly topics: readonly string[];
}

/** The part `plain` of a session. */
export class PlainPeers {
  /** Topics of publishes that nobody is going to acknowledge. */
  private _blind: string[] = [];
  /** Requests to subscribe that the peer has not answered, oldest first, by the `ref` that it never
   * sees; of subscriptions that have ended, too. */
  private readonly _asks = new Map<string, Ask>();
  /** Slots of a batch sent one by one that the server has still to answer. */
  private readonly _awaited = new WeakMap<Entry, Set<number>>();

  constructor(private readonly _session: Lifecycle) {}

  private get _rare(): Rare {
    return this._session._parts.rare as Rare;
  }

  // ---------------------------------------------------------------- frames

  /** The frame as the peer understands it. */
  _translate(frame: Loose<ClientFrame>): ClientFrame {
    const { _peer } = this._session;
    const isRequest = frame.type === 'publish' && !_peer?.incremental;
    if (!_peer || isRequest || this._can('ref') || !('ref' in frame)) return frame as ClientFrame;
    const { ref, ...others } = frame;
    if (frame.type !== 'subscribe') return others as ClientFrame;
    const { type, topics, since, history } = frame;
    this._remember(String(ref), topics);
    if (_peer.features) return others as ClientFrame;
    return { type, topics, since: since ?? (history === undefined ? undefined : 0) } as ClientFrame;
  }

  private _can(feature: string): boolean {
    return this._session._peer?.features?.includes(feature) ?? false;
  }

  /** Whether the peer answers publishes: beside an event stream, each is a request of its own. */
  private get _acks(): boolean {
    return !this._session._peer?.incremental || (this._can('ref') && this._can('ack'));
  }

  // ---------------------------------------------------------------- subscriptions

  /** A cursor that fits the peer, unless it is the usual one. */
  _cursor(event: Subscribe): Cursor | undefined {
    const { _peer: peer, _options } = this._session;
    if (!peer || this._can('seq')) return undefined;
    return new IdCursor(event, _options, peer.history ?? LIMITS.historyMaxMessages);
  }

  /** Give the subscription the cursor that fits the peer, which may be another than before. */
  _suit(join: Join): void {
    const { _cursor: old, _event: event } = join;
    if (old._counts === this._can('seq')) return;
    join._cursor = this._session.joins._cursorFor(event);
    if (!join._answered) return;
    join._answered = false;
    const standing = old._counts ? standingOf(old as SeqCursor) : (old as IdCursor)._standing();
    const { _newest: since, _topics } = standing;
    join._cursor = this._session.joins._cursorFor({ ...event, since, after: undefined });
    for (const topic of _topics) {
      this._session._tell({ ...gap(topic, 'unproven'), sub: event.sub });
    }
  }

  private _remember(ref: string, topics: readonly string[]): void {
    const join = this._session.joins._asked.get(ref);
    for (const [older, ask] of this._asks) {
      if (ask.join === join || this._asks.size >= MAX_ASKS) this._asks.delete(older);
    }
    this._asks.set(ref, { join, topics });
  }

  /** The request that a `subscribed` without a `ref` answers: the oldest of its topics. */
  _answeredBy({ topics, more }: SubscribedFrame): string | undefined {
    const size = new Set(topics).size;
    const fits = [...this._asks].filter(([, ask]) =>
      topics.every((topic) => ask.topics.includes(topic)),
    );
    const whole = fits.find(([, ask]) => ask.topics.length === size);
    const part = fits.find(([, ask]) => size && size < ask.topics.length);
    const ref = (whole ?? part)?.[0];
    if (ref && !(more && this._session.joins._asked.has(ref))) this._asks.delete(ref);
    return ref;
  }

  /** Take for refused what an answer without a `ref` leaves out. */
  _fill(join: Join, { ref, topics }: SubscribedFrame): void {
    if (ref !== undefined || !topics.length) return;
    const known = new Set([...topics, ...join._denied.map(({ topic }) => topic)]);
    for (const topic of join._patterns) {
      if (!known.has(topic)) join._denied.push({ topic, code: 'forbidden' });
    }
  }

  /**
   * The request that an `error` without a `ref` is about: the oldest that names its topic.
   *
   * Where it may be about a publish, the subscription is asked for once more after a while, and is
   * refused in the end.
   */
  _refusedBy({ code, topic }: ErrorFrame): string | undefined {
    if (OF_PUBLISH.includes(code)) return undefined;
    for (const [ref, { join, topics }] of this._asks) {
      if (topic !== undefined && !topics.includes(topic)) continue;
      const doubts = topic === undefined ? MAX_DOUBTS : 1;
      if (!join || join._doubts >= doubts || !this._mayBlame(topic)) {
        this._asks.delete(ref);
        return ref;
      }
      if (!join._again) {
        join._again = true;
        join._doubts += 1;
        this._rare._askLater();
      }
      break;
    }
    return undefined;
  }

  // ---------------------------------------------------------------- publishes

  /** A connection is there: what is in doubt is unknown now, if the peer cannot tell. */
  _connected(): void {
    this._blind = [];
    if (!(this._acks && this._can('idempotency'))) this._doubt();
  }

  /** The connection is gone: what was in flight is unknown, if the peer publishes an id twice. */
  _lost(): void {
    this._asks.clear();
    if (this._session._peer && !this._can('idempotency')) this._doubt();
  }

  private _doubt(): void {
    const { outbox } = this._session;
    for (const entry of outbox._queue) {
      if (entry._sent) outbox._settle(entry, { kind: 'unknown' });
    }
  }

  /** Send a publish in the way of such a peer; false if the usual way will do. */
  _publish(entry: Entry): boolean {
    const { _publish: publish, _ref } = entry;
    const ack = this._acks;
    const batch = this._can('batch');
    if (ack && (batch || !publish.batch)) return false;
    const slots = this._rare._open(entry);
    if (publish.batch && batch) {
      const messages = slots.map(([, message]) => message);
      this._session._send({ type: 'publish', messages });
    } else {
      for (const [slot, message] of slots) {
        const ref = publish.messages.length === 1 ? _ref : `${_ref}.${slot}`;
        this._session._send({ type: 'publish', message, ref: ack ? ref : undefined });
      }
    }
    if (ack) {
      this._awaited.set(entry, new Set(slots.map(([slot]) => slot)));
    } else {
      for (const { topic } of publish.messages) this._blind.push(topic);
      this._blind.splice(0, this._blind.length - MAX_BLIND);
      const results = publish.messages.map(({ id }) => ({ id }) as PublishResult);
      this._session.outbox._settle(entry, { kind: 'acked', results });
    }
    return true;
  }

  /** The answer to one message of a batch that was sent one by one; false if it is none. */
  _answered(frame: PublishedFrame | ErrorFrame): boolean {
    const { outbox } = this._session;
    const [, ref, number] = /^(p\d+)\.(\d+)$/.exec(frame.ref ?? '') ?? [];
    const entry = outbox._find(ref);
    const found = entry && this._rare._open(entry).find(([slot]) => slot === Number(number));
    if (!found) return false;
    const [slot, message] = found;
    const pause = this._rare._note(entry, slot, message, this._resultOf(frame));
    const awaited = this._awaited.get(entry);
    awaited?.delete(slot);
    if (!awaited?.size) {
      this._rare._advance(entry, pause);
    } else {
      if (pause) this._rare._pause(pause);
      outbox.flush();
    }
    return true;
  }

  private _resultOf(frame: PublishedFrame | ErrorFrame): PublishResult {
    if (frame.type === 'published') return this._rare._resultsOf(frame)[0] ?? {};
    const { code, message, remedy, retry_after_ms } = frame;
    const about = code === 'rate_limited' ? { retry_after_ms } : { remedy };
    return { error: { code, message, ...about } } as PublishResult;
  }

  /**
   * Whether an `error` without a `ref` may be about a publish.
   *
   * One that names no topic blames each publish once.
   */
  private _mayBlame(topic: string | undefined): boolean {
    return topic === undefined ? this._blind.shift() !== undefined : this._blind.includes(topic);
  }
}

/** Time of the newest message, Unix milliseconds; topics of which something is remembered. */
function standingOf({ _marks, _since }: SeqCursor): Standing {
  const times = [..._marks.values()].map(({ _at }) => _at);
  const _newest = times.length ? times.reduce((a, b) => Math.max(a, b)) : _since;
  return { _newest, _topics: [..._marks.keys()] };
}
