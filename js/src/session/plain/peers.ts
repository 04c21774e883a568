/**
 * What a session does otherwise where the server knows HIP-56 and little more.
 *
 * Such a server echoes no `ref`, so its answers are matched by their topics and their order; it may
 * acknowledge no publish, number no message, publish an id twice, or take no batch.
 */

import type {
  ClientFrame,
  ErrorFrame,
  PublishedFrame,
  PublishResult,
  SubscribedFrame,
} from '../../generated/wire.js';
import type { Loose } from '../../wire/compact.js';
import { type Cursor, gap, SeqCursor } from '../cursor.js';
import type { Subscribe } from '../events.js';
import type { Join } from '../join.js';
import { REFUSED_FOR_NOW } from '../joins.js';
import type { Lifecycle } from '../lifecycle.js';
import { type Entry, open, RATE_LIMITED, resultIn } from '../outbox.js';
import type { Peer } from '../peer.js';
import { IdCursor, type Standing } from './id_cursor.js';

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

/** The part `plain` of a session. */
export class PlainPeers {
  /** Topics of publishes that nobody is going to acknowledge. */
  private _blind: string[] = [];
  /** Slots of a batch sent one by one that the server has still to answer. */
  private readonly _awaited = new WeakMap<Entry, Set<number>>();

  constructor(private readonly _session: Lifecycle) {}

  // ---------------------------------------------------------------- frames

  /** The frame as the peer understands it. */
  _translate(frame: Loose<ClientFrame>): ClientFrame {
    const { _peer: peer, joins } = this._session;
    for (const oldest of joins._asked.keys()) {
      if (joins._asked.size <= MAX_ASKS) break;
      joins._asked.delete(oldest);
    }
    if (!peer || peer.ref || !('ref' in frame)) return frame as ClientFrame;
    const { ref, ...others } = frame;
    if (!peer.plain || frame.type !== 'subscribe') return others as ClientFrame;
    const { type, topics, since, history } = frame;
    return { type, topics, since: since ?? (history === undefined ? undefined : 0) } as ClientFrame;
  }

  // ---------------------------------------------------------------- subscriptions

  /** A cursor that fits the peer, unless it is the usual one. */
  _cursor(event: Subscribe): Cursor | undefined {
    const { _peer: peer, _options } = this._session;
    return peer && !peer.seq ? new IdCursor(event, _options, peer.history) : undefined;
  }

  /** Give the subscription the cursor that fits the peer, which may be another than before. */
  _suit(join: Join): void {
    const { _cursor: old, _event: event } = join;
    const counts = old instanceof SeqCursor;
    if (counts === this._session._peer?.seq) return;
    join._cursor = this._session.joins._cursorFor(event);
    if (!join._answered) return;
    join._answered = false;
    const { _newest: since, _topics } = counts ? standing(old) : (old as IdCursor)._standing();
    if (join._cursor instanceof SeqCursor) {
      join._cursor._since = since;
      join._cursor._marks.clear();
    } else {
      join._cursor = this._session.joins._cursorFor({ ...event, since, after: undefined });
    }
    for (const topic of _topics) {
      this._session._tell({ ...gap(topic, 'unproven'), sub: event.sub });
    }
  }

  /** The request that a `subscribed` without a `ref` answers: the oldest of its topics. */
  _answeredBy({ topics }: SubscribedFrame): string | undefined {
    const { _asked } = this._session.joins;
    const size = new Set(topics).size;
    const fits = [..._asked].filter(([, ask]) =>
      topics.every((topic) => ask.topics.includes(topic)),
    );
    const whole = fits.find(([, ask]) => ask.topics.length === size);
    const part = fits.find(([, ask]) => size && size < ask.topics.length);
    return (whole ?? part)?.[0];
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
    const { _peer: peer, joins } = this._session;
    if (!peer || peer.ref || OF_PUBLISH.includes(code)) return undefined;
    for (const [ref, { join, topics }] of joins._asked) {
      if (topic !== undefined && !topics.includes(topic)) continue;
      const doubts = topic === undefined ? MAX_DOUBTS : 1;
      if (join._doubts >= doubts || !this._mayBlame(topic)) return ref;
      if (!join._again) {
        join._again = true;
        join._doubts += 1;
        joins._later(REFUSED_FOR_NOW);
      }
      break;
    }
    return undefined;
  }

  // ---------------------------------------------------------------- publishes

  /** A connection is there: what is in doubt is unknown now, if the peer cannot tell. */
  _connected(): void {
    this._blind = [];
    const { _peer: peer } = this._session;
    if (!(peer?.ack && peer.idempotent)) this._doubt();
  }

  /** The connection is gone: what was in flight is unknown, if the peer publishes an id twice. */
  _lost(): void {
    const { _peer: peer } = this._session;
    if (peer && !peer.idempotent) this._doubt();
  }

  private _doubt(): void {
    const { outbox } = this._session;
    for (const entry of outbox._queue._entries.filter(({ _sent }) => _sent)) {
      outbox._settle(entry, { kind: 'unknown' });
    }
  }

  /** Send a publish in the way of such a peer; false if the usual way will do. */
  _publish(entry: Entry): boolean {
    const { ack, batch } = this._session._peer as Peer;
    const { _publish: publish, _ref, _results } = entry;
    if (ack && (batch || !publish.batch)) return false;
    const slots = open(entry);
    if (publish.batch && batch) {
      const messages = slots.map(([, message]) => message);
      this._session._send({ type: 'publish', messages });
    } else {
      for (const [slot, message] of slots) {
        const ref = _results.length === 1 ? _ref : `${_ref}.${slot}`;
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
    const entry = outbox._flight._entries.find(({ _ref }) => _ref === ref);
    const found = entry && open(entry).find(([slot]) => slot === Number(number));
    if (!found) return false;
    const [slot, message] = found;
    const pause = outbox._answer(entry, slot, message, resultOf(frame));
    const awaited = this._awaited.get(entry);
    awaited?.delete(slot);
    if (!awaited?.size) {
      outbox._advance(entry, pause);
    } else {
      if (pause) outbox.pause(pause);
      outbox.flush();
    }
    return true;
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

function resultOf(frame: PublishedFrame | ErrorFrame): PublishResult {
  if (frame.type === 'published') return frame.results?.[0] ?? resultIn(frame);
  const { code, message, remedy } = frame;
  return { error: code === RATE_LIMITED ? frame : { code, message, remedy } } as PublishResult;
}

/** Time of the newest message, Unix milliseconds; topics of which something is remembered. */
function standing({ _marks, _since }: SeqCursor): Standing {
  const times = [..._marks.values()].map(({ _at }) => _at);
  const _newest = times.length ? times.reduce((a, b) => Math.max(a, b)) : _since;
  return { _newest, _topics: [..._marks.keys()] };
}
