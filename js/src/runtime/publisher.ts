/** Publishes and updates of presence of one client, until they are settled. */

import { DEVELOPMENT } from '../build.js';
import type { TimerHandle } from '../clock.js';
import { fromCode, PubSubError } from '../errors.js';
import type { JsonObject, Publication, PublishResult } from '../generated/wire.js';
import { Fifo } from '../session/fifo.js';
import type { Outcome, OutcomePort, Peer, Publish } from '../session/ports.js';
import type { OperatedSession } from '../session/session.js';
import type { Published, Via } from '../values.js';
import type { Client } from './environment.js';
import { failed, unansweredUpdate } from './failures.js';
import type { Deliveries } from './inbox.js';
import { rejected } from './rejected.js';
import { onAbort, type Timed } from './waiting.js';

/** Maximum messages of a batch if the server does not state a limit. */
const BATCH = 1_000;

/** Maximum bytes of payload per frame of a batch. */
const BATCH_BYTES = 1_048_576;

/** A message that can be published. */
export interface Prepared {
  readonly _message: Publication & { readonly id: string };
  /** Bytes that it counts for in the queue. */
  readonly size: number;
}

interface Sending extends Timed, Pick<Publish, 'key' | 'background'> {
  readonly via?: Via | undefined;
}

/** A publish or presence update without an outcome. */
interface Unsettled {
  readonly ref: number;
  readonly settle: (outcome: Outcome) => void;
  /** When it is given up, by the clock. */
  readonly end: number;
}

/** Publishes one message or many, over the connection or as a request. */
export class Publisher implements OutcomePort {
  /** Resolves when the publishes over HTTP are settled. */
  requests: Promise<unknown> | undefined;
  /** Not a map: its table keeps removed values until it is full, so that they age and cost time. */
  private readonly _awaiting = new Fifo<Unsettled>();
  /** When the earliest deadline of a call was, by the clock; its timer fires then. */
  private _deadline = Infinity;
  private _deadlineTimer: TimerHandle | undefined;
  /** Calls that are cancelled in this turn. */
  private readonly _cancelled: number[] = [];
  private _isSlow = false;
  private _numbers = 0;

  /**
   * @param _client Calls `handled` after each call into its session.
   * @param _deliveries Skips own messages; ends with the client.
   */
  constructor(
    private readonly _client: Client,
    private readonly _deliveries: Deliveries,
  ) {}

  // ---------------------------------------------------------------- operations

  async publish(one: Prepared, options: Sending): Promise<Published> {
    const outcome = await this._submit([one], options);
    const [result] = this._resultsOf([one], options, outcome);
    if (result instanceof PubSubError) throw result;
    return result as Published;
  }

  /**
   * Publish several messages, frame by frame; other publishes in the meantime follow the first
   * frame, without delay.
   */
  async publishMany(
    items: readonly Prepared[],
    options: Sending,
  ): Promise<(Published | PubSubError)[]> {
    const results: (Published | PubSubError)[] = [];
    for (const rest = [...items]; rest.length; ) {
      const frame = rest.splice(0, firstFrame(rest, this._client.peer));
      try {
        const outcome = await this._submit(frame, options, true);
        results.push(...this._resultsOf(frame, options, outcome));
      } catch (error) {
        if (!(error instanceof PubSubError)) throw error;
        const { code, message, cause } = error;
        for (const { _message } of frame) {
          const { id, topic } = _message;
          const details = { ...error, cause, id, topic };
          results.push(fromCode(code, message, details));
        }
      }
    }
    return results;
  }

  /** Change how this client appears; see `PubSub.updatePresence`. */
  async updatePresence(topic: string | undefined, data: JsonObject, options: Timed): Promise<void> {
    options.signal?.throwIfAborted();
    const outcome = await this.setPresence(topic, data, options);
    if (outcome.kind === 'rejected') throw rejected(outcome, topic);
    if (outcome.kind === 'unknown') throw unansweredUpdate(this._client, options, topic);
  }

  /** Set how this client appears, now or with the next connection. */
  setPresence(
    topic: string | undefined,
    data: JsonObject,
    options: Partial<Timed> = {},
  ): Promise<Outcome> {
    const ref = this.number();
    const update = ({ operations }: OperatedSession): void =>
      operations.updatePresence(topic, data, ref);
    return this._settled(ref, update, options);
  }

  number(): number {
    return ++this._numbers;
  }

  // ---------------------------------------------------------------- from the driver

  /** The outcome of a publish or an update of presence. */
  settle(ref: number, outcome: Outcome): void {
    const one = this._awaiting._find((each) => each.ref === ref);
    this._awaiting._delete(one);
    one?.settle(outcome);
  }

  /** After a call into the session: warn once of the rate. */
  handled(): void {
    if (this._isSlow || !this._client.session.operations.publishes.slowed) return;
    this._isSlow = true;
    const { options, peer } = this._client;
    options.logger.warn(
      DEVELOPMENT
        ? 'A publish waited a second or more: the server accepts ' +
            `${peer?.rate ? `${peer.rate} messages per second` : 'no more messages for now'} with this ` +
            'token. Publish less often, combine several changes in one message, or raise the rate of ' +
            'the server. Further waits are not logged; `ps.slowed` counts them.'
        : 'Publishes wait for the publish rate.',
    );
  }

  finish(error: PubSubError | undefined): void {
    this._deadlineTimer?.cancel();
    this._deliveries.finish(error);
  }

  // ---------------------------------------------------------------- inside

  /**
   * Call into the session; the promise receives the settled outcome. It rejects if the client has
   * ended, or when the signal is aborted: then the session knows that no call waits any more.
   */
  private _settled(
    ref: number,
    call: (session: OperatedSession) => void,
    { end = Infinity, signal }: Partial<Timed>,
  ): Promise<Outcome> {
    const { _client: client } = this;
    const settled = new Promise<Outcome>((settle) => {
      // The client may have ended while a part of it was loading.
      if (client.over.aborted) client.checkOpen();
      this._awaiting._add({ ref, settle, end });
      if (end < this._deadline) this._expireAt(end);
      client.perform(call);
    });
    if (!signal) return settled;
    const ignore = onAbort(signal, () => {
      // With all that are cancelled in this turn.
      if (this._cancelled.push(ref) === 1) queueMicrotask(() => this._expire());
    });
    return settled.finally(ignore).then((outcome) => {
      signal.throwIfAborted();
      return outcome;
    });
  }

  /**
   * Publish over the connection or HTTP; given up at the end, or when the signal is aborted.
   *
   * @param batch In one frame, with one result per message.
   */
  private _submit(items: readonly Prepared[], options: Sending, batch?: boolean): Promise<Outcome> {
    const { _client: client } = this;
    const { signal, via, key, background } = options;
    signal?.throwIfAborted();
    const messages = items.map(({ _message }) => _message);
    this._deliveries.rememberOwn(messages);
    // A plain HIP-56 peer does not acknowledge publishes on a socket, but answers a request.
    const certain = via === 'rest';
    if (certain || (via !== 'socket' && client.peer?.acks === false)) {
      const { requests: before } = this;
      const turn = client
        .part(client.http, options)
        .then((api) => api.publish(messages, options, certain, before));
      this.requests = Promise.allSettled([before, turn]).then(() => {});
      return turn.then(
        (outcome) => outcome ?? this._submit(items, { ...options, via: 'socket' }, batch),
      );
    }
    const { sendPolicy: policy } = client.options;
    const publish: Publish = {
      ref: this.number(),
      messages,
      size: items.reduce((sum, { size }) => sum + size, 0),
      policy,
      key: policy === 'latest' ? key : undefined,
      batch,
      background,
    };
    // Give up cancelled publishes first: they must not occupy the queue.
    if (this._cancelled.length) this._expire();
    return this._settled(publish.ref, ({ operations }) => operations.publish(publish), options);
  }

  /** Start one timer that gives up the calls whose deadline has passed. */
  private _expireAt(end: number): void {
    const { clock } = this._client;
    this._deadline = end;
    this._deadlineTimer?.cancel();
    this._deadlineTimer = clock.callLater(
      end - clock.now(),
      () => {
        this._deadline = Infinity;
        const now = clock.now();
        const due = this._awaiting._all().filter(({ end }) => end <= now);
        this._expire(due.map(({ ref }) => ref));
        let next = Infinity;
        for (const { end } of this._awaiting._all()) next = Math.min(next, end);
        if (next < Infinity) this._expireAt(next);
      },
      true,
    );
  }

  /** Give up calls. One by one, the next one would be sent in the place of the first. */
  private _expire(refs: readonly number[] = this._cancelled.splice(0)): void {
    if (refs.length) this._client.perform(({ operations }) => operations.expire(refs));
  }

  /** One result per message, in order, from the outcome of a publish. */
  private _resultsOf(
    items: readonly Prepared[],
    options: Timed,
    outcome: Outcome,
  ): (Published | PubSubError)[] {
    return outcome.kind === 'acked'
      ? items.map((item, n) => this._published(item, outcome.results[n]))
      : failed(this._client, items, options, outcome);
  }

  private _published({ _message }: Prepared, result: PublishResult = {}): Published | PubSubError {
    const { error, id = _message.id, timestamp, seq, duplicate = false } = result;
    if (!error) return { id, timestamp, seq, duplicate };
    this._client.tokens._redact(error);
    return rejected(error, _message.topic, _message.id);
  }
}

/** Number of messages that fit into one frame. */
function firstFrame(items: readonly Prepared[], peer: Peer | undefined): number {
  const limit = peer?.limits?.max_batch || BATCH;
  // Room is granted for a whole frame.
  const most = Math.min(limit, peer?.burst ?? limit);
  let bytes = 0;
  const end = items.findIndex(({ size }, n) => {
    bytes += size;
    return n && (n >= most || bytes > BATCH_BYTES);
  });
  return end < 0 ? items.length : end;
}
