/**
 * The dialect of servers that implement little more than HIP-56: an adapter between codec and
 * session.
 *
 * Such a server echoes no `ref`, so its answers are matched by their topics and their order; it may
 * acknowledge no publish, number no message, publish an id twice, or take no batch.
 */

import type { Loose } from '../../compact.js';
import * as LIMITS from '../../generated/limits.js';
import type {
  ClientFrame,
  ErrorFrame,
  Publication,
  PublishedFrame,
  PublishResult,
  ServerFrame,
  SubscribedFrame,
} from '../../generated/wire.js';
import { RATE_LIMITED } from '../../session/events.js';
import type { Peer } from '../../session/ports.js';
import type { PublishState } from '../../session/publishes.js';
import type { SubscriptionState } from '../../session/routes.js';
import type { OperatedSession } from '../../session/session.js';
import { IdCursor } from './id_cursor.js';

/** Maximum remembered requests; a peer that does not echo `ref` may never answer some. */
const MAX_REQUESTS = 10_000;

/** Maximum remembered topics of publishes, whose only answer is an `error` without a `ref`. */
const MAX_BLIND = 1_000;

/**
 * How often an `error` may be attributed to a publish before it counts for the subscription; once
 * if it names a topic of the subscription.
 */
const MAX_DOUBTS = 5;

/** Error codes that do not answer a `subscribe`. */
const OF_PUBLISH: readonly string[] = [
  'rate_limited',
  'payload_too_large',
  'invalid_payload',
  'conflict',
  'slow_consumer',
];

type PublishFrame = Extract<Loose<ClientFrame>, { readonly type: 'publish' }>;

/** A request to subscribe that the peer has not answered. */
interface Request {
  /** How often an `error` was attributed to a publish instead of this subscription. */
  doubts: number;
  /** Patterns that the parts of its answer have denied. */
  readonly denied: Set<string>;
}

/** The dialect of one connection. */
export class PlainDialect {
  /** Topics of publishes that the peer will not acknowledge. */
  private readonly _blind: string[] = [];
  /** Unanswered requests to subscribe, oldest first; includes ended subscriptions. */
  private readonly _requests = new Map<SubscriptionState, Request>();
  /** Unanswered slots of batches that were sent one by one. */
  private readonly _batches = new WeakMap<PublishState, Set<number>>();

  /**
   * @param _session Receives the frames of a current server.
   * @param _write Writes a frame in the peer's format.
   */
  constructor(
    private readonly _session: OperatedSession,
    private readonly _write: (frame: ClientFrame) => void,
  ) {
    _session.operations.subscriptions.cursors = (request, options) => {
      const { features, limits } = _session.context.peer ?? {};
      return features?.has('seq') === false
        ? new IdCursor(request, options, limits?.history_max ?? LIMITS.historyMaxMessages)
        : undefined;
    };
  }

  // ---------------------------------------------------------------- from the server

  /** Pass a frame to the session as a current server would send it. */
  receive(frame: ServerFrame, at: number): void {
    const read = this._read(frame);
    if (read) this._session.receive(read, at);
  }

  private _read(frame: ServerFrame): ServerFrame | undefined {
    switch (frame.type) {
      case 'subscribed':
        return this._answer(frame);
      case 'published':
        return this._answerOne(frame) ? undefined : frame;
      case 'error':
        return this._answerOne(frame) ? undefined : this._refusal(frame);
      default:
        return frame;
    }
  }

  /**
   * A `subscribed` with the `ref` of the request that it answers: the oldest with its topics. The
   * topics that it omits are denied.
   */
  private _answer(frame: SubscribedFrame): SubscribedFrame {
    const { more, denied = [] } = frame;
    const state = frame.ref ? undefined : this._answeredBy(frame);
    const before = state && this._requests.get(state)?.denied;
    if (!before) return frame;
    const { ref, _patterns: patterns } = state;
    const isOpen = this._session.operations.subscriptions.requests.has(ref);
    if (!more || !isOpen) this._requests.delete(state);
    if (!isOpen) return frame;
    for (const { topic } of denied) before.add(topic);
    if (more) return { ...frame, ref };
    const missing = patterns.filter((topic) => !frame.topics.includes(topic) && !before.has(topic));
    const left = missing.map((topic) => ({ topic, code: 'forbidden' }));
    return { ...frame, ref, denied: [...denied, ...left] };
  }

  private _answeredBy({ topics }: SubscribedFrame): SubscriptionState | undefined {
    const { size } = new Set(topics);
    let part: SubscriptionState | undefined;
    for (const state of this._requests.keys()) {
      const { _patterns: patterns } = state;
      if (!size || !topics.every((topic) => patterns.includes(topic))) continue;
      if (size === patterns.length) return state;
      part ??= state;
    }
    return part;
  }

  /** An `error` with the `ref` of the request that it is about; none if that has ended. */
  private _refusal(frame: ErrorFrame): ErrorFrame | undefined {
    const state = frame.ref ? undefined : this._refusedBy(frame);
    if (!state) return frame;
    const { ref } = state;
    return this._session.operations.subscriptions.requests.has(ref) ? { ...frame, ref } : undefined;
  }

  /**
   * The request that an `error` without a `ref` is about: the oldest with its topic.
   *
   * If the error may be about a publish, the subscription is requested again after a while, and is
   * rejected in the end.
   */
  private _refusedBy({ code, topic }: ErrorFrame): SubscriptionState | undefined {
    if (OF_PUBLISH.includes(code)) return undefined;
    for (const [state, request] of this._requests) {
      if (topic !== undefined && !state._patterns.includes(topic)) continue;
      const most = topic === undefined ? MAX_DOUBTS : 1;
      if (request.doubts >= most || !this._mayBlame(topic)) {
        this._requests.delete(state);
        return state;
      }
      if (!state.retryPending) {
        request.doubts += 1;
        this._session.operations.subscriptions.retryLater(state);
      }
      break;
    }
    return undefined;
  }

  /**
   * Whether an `error` without a `ref` may be about a publish.
   *
   * An error without a topic counts once per publish.
   */
  private _mayBlame(topic: string | undefined): boolean {
    return topic === undefined ? this._blind.shift() !== undefined : this._blind.includes(topic);
  }

  /** Process the answer to one message of a split batch; false if it is not such an answer. */
  private _answerOne(frame: PublishedFrame | ErrorFrame): boolean {
    const [, ref = '', number] = /^(p\d+)\.(\d+)$/.exec(frame.ref ?? '') ?? [];
    const slot = Number(number);
    const { publishes } = this._session.operations;
    const entry = publishes._flight._byRef(ref);
    if (!entry?._unanswered().includes(slot)) return false;
    const left = this._batches.get(entry);
    left?.delete(slot);
    const isError = frame.type === 'error';
    if (!isError) this._session.lifecycle._noteUseful();
    publishes.heard();
    const result = isError ? refusal(frame) : (frame as PublishResult);
    publishes._take(entry, [[slot, result]], !!left?.size);
    this._session._endStep();
    return true;
  }

  // ---------------------------------------------------------------- from the session

  /** Write a frame in the peer's format. */
  send(frame: Loose<ClientFrame>): void {
    const { peer } = this._session.context;
    if (!peer || !('ref' in frame)) {
      this._write(frame as ClientFrame);
    } else if (frame.type === 'publish') {
      this._publish(frame, peer);
    } else if (peer.features.has('ref')) {
      this._write(frame as ClientFrame);
    } else {
      this._writeWithoutRef(frame, peer);
    }
  }

  private _writeWithoutRef(frame: Loose<ClientFrame>, { version }: Peer): void {
    const { ref, ...others } = frame as Loose<ClientFrame> & { readonly ref?: unknown };
    if (others.type !== 'subscribe') {
      this._write(others as ClientFrame);
      return;
    }
    const { type, topics, since, history } = others;
    this._remember(String(ref));
    const bare = { type, topics, since: since ?? (history === undefined ? undefined : 0) };
    this._write((version === undefined ? bare : others) as ClientFrame);
  }

  private _remember(ref: string): void {
    const state = this._session.operations.subscriptions.requests.get(ref) as SubscriptionState;
    const doubts = this._requests.get(state)?.doubts ?? 0;
    this._requests.delete(state);
    if (this._requests.size >= MAX_REQUESTS) {
      const [oldest] = this._requests.keys();
      this._requests.delete(oldest as SubscriptionState);
    }
    this._requests.set(state, { doubts, denied: new Set() });
  }

  private _publish(frame: PublishFrame, peer: Peer): void {
    const { message, messages, ref } = frame;
    const batch = peer.features.has('batch');
    if (peer.acks && (batch || !messages)) {
      this._write(frame as ClientFrame);
      return;
    }
    const all = messages ?? (message ? [message] : []);
    if (!peer.acks) {
      for (const { topic } of all) this._blind.push(topic);
      this._blind.splice(0, this._blind.length - MAX_BLIND);
    }
    if (messages && batch) {
      this._write({ type: 'publish', messages });
    } else if (!peer.acks) {
      for (const one of all) this._write({ type: 'publish', message: one });
    } else {
      this._writeOneByOne(String(ref));
    }
  }

  private _writeOneByOne(ref: string): void {
    const { publishes } = this._session.operations;
    const entry = publishes._flight._byRef(ref);
    if (!entry) return;
    const open = entry._unanswered();
    this._batches.set(entry, new Set(open));
    for (const slot of open) {
      const message = entry._publish.messages[slot] as Publication;
      this._write({ type: 'publish', message, ref: `${ref}.${slot}` });
    }
  }
}

/** The outcome of a message, from the error about it. */
function refusal({ code, message, remedy, field, retry_after_ms }: ErrorFrame): PublishResult {
  const about = code === RATE_LIMITED ? { retry_after_ms } : { remedy, field };
  return { error: { code, message, ...about } } as PublishResult;
}
