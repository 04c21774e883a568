/** The subscriptions of one event stream, and their answers. */

import { DEVELOPMENT } from '../build.js';
import { compact } from '../compact.js';
import type { PubSubError } from '../errors.js';
import type { StreamSubscription, SubscribeRequest } from '../generated/http.js';
import type {
  Denial,
  Envelope,
  ErrorFrame,
  MessageFrame,
  ServerFrame,
  SubscribedFrame,
  SubscribeFrame,
} from '../generated/wire.js';
import type { Request } from '../http/request.js';
import { matches } from '../topics.js';

/** Maximum topics with a known position. Other topics are replayed from the start of the stream. */
const TOPICS_MAX = 10_000;

interface Wanted {
  readonly frame: SubscribeFrame;
  /** Whether the session has its `subscribed`. Later replays are then delivered as messages. */
  answered: boolean;
  /** Server time of that answer. */
  began: number | undefined;
}

/** The set of subscriptions for the next stream. */
export class StreamSubscriptions {
  /**
   * Whether the peer implements only HIP-56: one `GET` with all topics and the earliest `since`,
   * one `subscribed` for all of them, no `ref`.
   */
  plain = false;
  /** The number of the current set. */
  generation = 0;
  private _wanted: Wanted[] = [];
  private readonly _seqs = new Map<string, number>();
  private _newest = 0;
  private _openedAt = 0;

  /**
   * @param _wallMs Returns Unix milliseconds.
   * @param _overlap For a peer without `seq`: how far the replay reaches back before the newest
   *   message, in milliseconds.
   */
  constructor(
    private readonly _wallMs: () => number,
    private readonly _overlap: number,
  ) {}

  /** Whether the set is empty. */
  get empty(): boolean {
    return !this._wanted.length;
  }

  /**
   * Replace the current set.
   *
   * @returns Answers for the subscriptions of the old set that get no other answer. Without a
   *   `ref`, the session matches answers to requests by order.
   */
  replace(frames: readonly SubscribeFrame[]): ServerFrame[] {
    const overtaken = this._wanted
      .filter(({ answered, frame }) => !answered && frame.ref === undefined)
      .map(({ frame }): SubscribedFrame => ({ type: 'subscribed', topics: frame.topics }));
    this._wanted = frames.map((frame) => ({ frame, answered: false, began: undefined }));
    this.generation += 1;
    return overtaken;
  }

  /** Remove the subscriptions that consist only of these patterns. */
  remove(patterns: readonly string[]): void {
    const gone = new Set(patterns);
    this._wanted = this._wanted.filter(({ frame }) => !frame.topics.every((one) => gone.has(one)));
  }

  /**
   * The request for the current set, with the position of each subscription.
   *
   * @param client_id The client that the stream belongs to, for presence.
   */
  request(client_id: string | undefined): Request {
    this._openedAt ||= this._wallMs();
    if (this.plain) return this._get();
    const request = compact<SubscribeRequest>({
      subscriptions: this._wanted.map((one) => this._subscription(one)),
      presence: this._wanted.some(({ frame }) => frame.presence) || undefined,
      client_id,
    });
    return { method: 'POST', path: '/v1/subscribe', body: JSON.stringify(request) };
  }

  private _subscription(one: Wanted): StreamSubscription {
    const { topics, since, after, history, ref } = one.frame;
    if (!one.answered) return compact<StreamSubscription>({ topics, since, after, history, ref });
    const seen = [...this._seqs].filter(([topic]) => takes(one, topic));
    return compact<StreamSubscription>({
      topics,
      // A topic without a known position started after the first answer.
      since: since ?? one.began ?? this._openedAt - this._overlap,
      after: { ...after, ...Object.fromEntries(seen) },
      ref,
    });
  }

  private _get(): Request {
    const topics = new Set(this._wanted.flatMap(({ frame }) => frame.topics));
    const resume = Math.max(0, (this._newest || this._openedAt) - this._overlap);
    const starts = this._wanted
      .map(({ answered, frame }) => (answered ? resume : frame.since))
      .filter((start) => start !== undefined);
    const query = new URLSearchParams({ topics: [...topics].join(',') });
    if (starts.length) query.set('since', String(Math.min(...starts)));
    return { method: 'GET', path: `/v1/subscribe?${query}` };
  }

  /**
   * Convert a frame of a stream to the frames for the session.
   *
   * @param generation The number of the set with which the stream was opened.
   */
  translate(frame: ServerFrame, generation: number): readonly ServerFrame[] {
    if (frame.type === 'message') this._note(frame.message);
    if (frame.type !== 'subscribed') return [frame];
    for (const message of frame.history ?? []) this._note(message);
    for (const [topic, seq] of Object.entries(frame.positions ?? {})) this._setPosition(topic, seq);
    if (this.plain && frame.ref === undefined) {
      return generation === this.generation ? this._share(frame) : [];
    }
    const found = this._wanted.find((one) => one.frame.ref === frame.ref);
    if (!found) return [frame];
    if (found.answered) return asMessages(frame);
    found.answered = !frame.more;
    found.began ??= frame.timestamp;
    return [frame];
  }

  /** Split the single answer of a plain peer among its subscriptions. */
  private _share(frame: SubscribedFrame): ServerFrame[] {
    const answers: ServerFrame[] = this._wanted.some((one) => one.answered)
      ? asMessages(frame)
      : [];
    const granted = new Set(frame.topics);
    for (const one of this._wanted) {
      if (one.answered) continue;
      one.answered = true;
      const { since, topics, ref } = one.frame;
      const history = (frame.history ?? []).filter(
        ({ timestamp, topic }) =>
          since !== undefined && (timestamp > since || timestamp === 0) && takes(one, topic),
      );
      answers.push(
        compact<SubscribedFrame>({
          type: 'subscribed',
          topics: topics.filter((topic) => !granted.size || granted.has(topic)),
          history,
          ref,
        }),
      );
    }
    return answers;
  }

  /** The answers for a stream whose topics were rejected. This empties the set. */
  denied(error: PubSubError): ServerFrame[] {
    const { code, remedy } = error;
    // In the development build, the text names one topic, but concerns all of them.
    const message = DEVELOPMENT
      ? error.message.replace(` (topic ${error.topic})`, '')
      : error.message;
    const answers = this._wanted.map(({ frame, answered }): ServerFrame => {
      const { topics, ref } = frame;
      const denial = { code: code as Denial['code'], message };
      if (answered || ref === undefined) {
        return compact<ErrorFrame>({ type: 'error', ...denial, remedy, topic: topics[0] });
      }
      const denied = topics.map((topic) => ({ topic, ...denial }));
      return { type: 'subscribed', topics: [], denied, ref };
    });
    this._wanted = [];
    return answers;
  }

  private _note({ topic, seq, timestamp }: Envelope): void {
    this._newest = Math.max(this._newest, timestamp);
    if (seq !== undefined) this._setPosition(topic, seq);
  }

  private _setPosition(topic: string, seq: number): void {
    if (seq <= (this._seqs.get(topic) ?? -1)) return;
    this._seqs.set(topic, seq);
    const [oldest = ''] = this._seqs.keys();
    if (this._seqs.size > TOPICS_MAX) this._seqs.delete(oldest);
  }
}

function takes({ frame }: Wanted, topic: string): boolean {
  return frame.topics.some((pattern) => matches(pattern, topic));
}

function asMessages(frame: SubscribedFrame): ServerFrame[] {
  const messages = (frame.history ?? []).map(
    (message): MessageFrame => ({ type: 'message', message }),
  );
  const errors = (frame.denied ?? []).map(
    ({ topic, code, message }): ErrorFrame => ({
      type: 'error',
      code,
      message: message ?? '',
      topic,
    }),
  );
  return [...messages, ...errors];
}
