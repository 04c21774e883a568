/**
 * Frames over HTTP: an event stream one way, REST calls the other (HIP-56 SSE, SSE-1).
 *
 * For networks that block WebSockets. The session uses the same frames as on a socket:
 *
 * - `auth` requests `GET /v1/session`, and the response becomes `auth.ok` or `auth.error`. A peer
 *   without this operation implements only HIP-56. A further `auth` reopens the stream with its
 *   token; the server replays what it missed as messages, and the session drops duplicates.
 * - The `subscribe` frames of one turn are the whole set: they open one stream. It replaces the
 *   previous one, which is read until the new one answers.
 * - `publish` and `presence.update` use REST, in order. Waiting messages share a batch.
 * - `ping` is not sent, because keepalive comments show that the stream is open.
 */

import { DEVELOPMENT } from '../build.js';
import type { Clock } from '../clock.js';
import { compact } from '../compact.js';
import {
  ConnectionFailed,
  NotFound,
  OperationTimeout,
  ProtocolError,
  PubSubError,
  Unavailable,
  Unsupported,
} from '../errors.js';
import type {
  AuthErrorFrame,
  AuthFrame,
  AuthOkFrame,
  ClientFrame,
  SubscribeFrame,
  UnsubscribedFrame,
  UnsubscribeFrame,
} from '../generated/wire.js';
import { sessionInfo } from '../http/calls.js';
import { describeAnswer, isPage, readError } from '../http/problems.js';
import { ask, bytesOf, statusOf, textOf } from '../http/request.js';
import { errorInfo, Rest } from '../http/rest.js';
import { actionOf } from '../session/events.js';
import type { ClientOptions } from '../settings/options.js';
import { type Decoded, Malformed, Unknown } from '../wire/decoded.js';
import { decodeEvent } from '../wire/readings.js';
import { EventParser } from './event_stream.js';
import { StreamPublisher } from './stream_publisher.js';
import { StreamSubscriptions } from './stream_subscriptions.js';
import type { Receiver, Transport, TransportEnd } from './transport.js';

export { probe } from './probe.js';

/** Statuses that mean that the peer does not have this operation. */
const MISSING: readonly number[] = [404, 405, 501];
const STREAM = { Accept: 'text/event-stream' };
/** Statuses with which a server with event streams rejects a request without topics. */
const BARE: readonly number[] = [400, 401, 403, 422, 429];
/** Statuses that reject the requested topics. */
const REFUSED: readonly number[] = [400, 403, 422];
/**
 * The close code that corresponds to a status. Other statuses indicate nothing about identity or
 * load.
 */
const CLOSE_CODES: Readonly<Record<number, number>> = { 413: 4413, 429: 4429, 503: 1013 };
/** Maximum bytes to read of an error response. */
const REFUSAL_MAX = 65_536;

/** One session over server-sent events and REST. */
export class SseTransport implements Transport {
  readonly incremental = false;
  lastReceived: number;
  private readonly _rest: Rest;
  private readonly _publisher: StreamPublisher;
  private readonly _subscriptions: StreamSubscriptions;
  private readonly _over = new AbortController();
  private _receiver: Receiver | undefined;
  /** Empty before the first `auth`. */
  private _token = '';
  private _clientId: string | undefined;
  private _outgoing: ClientFrame[] = [];
  private _greeting: { readonly frame: AuthOkFrame; readonly at: number } | undefined;
  private _authenticating: AbortController | undefined;
  /** The last request, until it is answered. */
  private _opening: AbortController | undefined;
  private _reading: AbortController | undefined;
  /** The last request followed one without an answer, which may reach the server after it. */
  private _overtakes = false;

  /**
   * @param _options `httpUrl`, `openTimeout`, `maxFrame`, `overlap` and the options of `Rest`.
   * @param _clock The clock of the client.
   * @param random Random numbers for the jitter of retries.
   */
  constructor(
    private readonly _options: ClientOptions,
    private readonly _clock: Clock,
    random: () => number,
  ) {
    this.lastReceived = _clock.now();
    const tokens = {
      current: async () => this._token,
      // Only the session renews tokens.
      replace: async (rejected: string) => (this._token === rejected ? undefined : this._token),
    };
    this._rest = new Rest(_options, tokens, _clock, random);
    this._publisher = new StreamPublisher(
      this._rest,
      { timeout: _options.operationTimeout, signal: this._over.signal },
      (frame) => this._put(frame),
      (reason, retryAfter) => this._end(reason, retryAfter),
    );
    this._subscriptions = new StreamSubscriptions(() => _clock.wallMs(), _options.overlap);
  }

  open(receiver: Receiver): void {
    this._receiver = receiver;
    // The `auth` frame causes the first request.
    queueMicrotask(() => this._receiver?.opened());
  }

  send(frames: readonly ClientFrame[]): void {
    if (!this._outgoing.length) queueMicrotask(() => this._turn());
    this._outgoing.push(...frames);
  }

  close(): void {
    this._receiver = undefined;
    this._over.abort();
  }

  // ---------------------------------------------------------------- frames to the server

  private _turn(): void {
    const frames = this._outgoing;
    this._outgoing = [];
    if (this._over.signal.aborted) return;
    const subscribes: SubscribeFrame[] = [];
    for (const frame of frames) {
      if (frame.type === 'auth') void this._authenticate(frame);
      else if (frame.type === 'subscribe') subscribes.push(frame);
      else if (frame.type === 'unsubscribe') this._unsubscribe(frame);
      else if (frame.type !== 'ping') this._publisher.put(frame);
    }
    if (!subscribes.length) return;
    for (const translated of this._subscriptions.replace(subscribes)) this._put(translated);
    this._reopen();
  }

  private _unsubscribe({ topics, ref }: UnsubscribeFrame): void {
    this._subscriptions.remove(topics);
    if (ref !== undefined) this._put({ type: 'unsubscribed', topics, ref } as UnsubscribedFrame);
    if (!this._subscriptions.empty) return;
    this._opening?.abort();
    this._reading?.abort();
    this._reading = undefined;
  }

  private async _authenticate({ token, ref, client_id }: AuthFrame): Promise<void> {
    const again = !!this._token;
    this._token = token;
    this._clientId ||= client_id;
    this._authenticating = this._begin(this._authenticating);
    const { signal } = this._authenticating;
    const limits = { timeout: this._options.openTimeout, attempts: 1, signal };
    const info = await this._rest
      .perform(sessionInfo(this._clientId), limits)
      .catch((error: unknown) => error);
    if (signal.aborted) return;
    if (
      info instanceof ConnectionFailed ||
      info instanceof OperationTimeout ||
      info instanceof Unavailable
    ) {
      this._end(info.message, info.retryAfter);
      return;
    }
    const plain =
      info instanceof NotFound || info instanceof Unsupported || info instanceof ProtocolError;
    if (info instanceof PubSubError && !plain) {
      this._put(authError(info, ref));
      return;
    }
    if (plain && !this._subscriptions.plain && !(await this._hasStreams(signal))) return;
    this._received();
    const frame = compact<AuthOkFrame>({
      client_id: '',
      ...(!plain && (info as object)),
      type: 'auth.ok',
      ref,
    });
    this._subscriptions.plain = plain;
    if (!plain) this._clientId = frame.client_id.slice(0, 64);
    this._rest.features = new Set(frame.features);
    this._greeting = plain ? undefined : { frame, at: this.lastReceived };
    this._put(frame);
    if (again && !this._subscriptions.empty) this._reopen();
  }

  /**
   * Whether a peer without sessions has event streams, as a plain peer does.
   *
   * Otherwise this ends the transport. A login page, a redirect or a proxy must not be treated as a
   * plain peer, because the session gives up its positions for a plain peer. The evidence is an
   * event stream, or an error response to this request, which names no topic.
   */
  private async _hasStreams(signal: AbortSignal): Promise<boolean> {
    const request = { method: 'GET', path: '/v1/subscribe', headers: STREAM } as const;
    const { host } = new URL(this._options.httpUrl);
    let reason = `${host} cannot be reached.`;
    try {
      const response = await ask(this._options, this._token, request, signal);
      const isOpen = isStream(response);
      if (isOpen) response.body?.cancel().catch(() => {});
      const body = isOpen ? '' : await refusalOf(response);
      if (isOpen || (BARE.includes(response.status) && !isPage(response, body)))
        return !signal.aborted;
      const why = DEVELOPMENT ? ': it is not a PubSub server, check `restUrl`' : '';
      const asked = DEVELOPMENT ? 'GET /v1/subscribe with ' : '';
      reason = `${host} answered ${asked}${describeAnswer(response, body)}${why}.`;
    } catch {}
    if (!signal.aborted) this._end(reason);
    return false;
  }

  // ---------------------------------------------------------------- the stream

  private _reopen(): void {
    this._overtakes = !!this._opening;
    this._opening = this._begin(this._opening);
    void this._run(this._opening);
  }

  private async _run(abort: AbortController): Promise<void> {
    const { maxFrame, httpUrl } = this._options;
    let reason = 'The server ended the event stream.';
    let retryAfter: number | undefined;
    let code: number | undefined;
    try {
      const response = await this._open(abort);
      if (response) retryAfter = await this._read(response, abort);
      else {
        abort.abort();
        if (this._opening === abort) this._opening = undefined;
      }
    } catch (error) {
      if (error instanceof RangeError) {
        code = 1009;
        reason = `An event has more than ${maxFrame} bytes.`;
      } else {
        reason = `The event stream from ${new URL(httpUrl).hostname} was lost.`;
      }
    }
    // The server ends a stream when another replaces it, and that one is about to open.
    // Its listener would otherwise stay until the transport ends.
    if (this._isSuperseded(abort)) abort.abort();
    else if (!abort.signal.aborted) this._end(reason, retryAfter, code);
  }

  /** Whether a stream is being replaced by one that is opening. */
  private _isSuperseded(abort: AbortController): boolean {
    return this._opening?.signal.aborted === false && abort === this._reading;
  }

  /** Open a stream for the current set; fall back to `GET` if the server has no `POST`. */
  private async _open({ signal }: AbortController): Promise<Response | undefined> {
    const { openTimeout } = this._options;
    // A `fetch` of the program may ignore the signal.
    const late = (): void =>
      void (
        signal.aborted ||
        this._end(DEVELOPMENT ? 'The event stream was not opened in time.' : 'timeout')
      );
    const timer = this._clock.callLater(openTimeout, late);
    try {
      while (true) {
        const request = { ...this._subscriptions.request(this._clientId), headers: STREAM };
        const response = await ask(this._options, this._token, request, signal);
        const { status } = response;
        if (isStream(response)) return response;
        if (MISSING.includes(status) && !this._subscriptions.plain) {
          this._subscriptions.plain = true;
        } else if (status === 429 && this._reading) {
          // The stream to be replaced counts towards the limit.
          this._reading.abort();
          this._reading = undefined;
        } else {
          const body = await refusalOf(response);
          if (!signal.aborted) this._refuse(response, body);
          return undefined;
        }
        response.body?.cancel().catch(() => {});
      }
    } finally {
      timer.cancel();
    }
  }

  /** Report a rejected stream to the session. */
  private _refuse(response: Response, body: string): void {
    const status = statusOf(response);
    const error = readError(response, body, this._clock.wallMs(), { token: this._token });
    if (status === 401) this._put(authError(error));
    else if (REFUSED.includes(status)) {
      for (const frame of this._subscriptions.denied(error)) this._put(frame);
    } else {
      const reason =
        DEVELOPMENT && status === 200
          ? "The server's answer is not an event stream."
          : `The server answered HTTP ${status}: ${error.message}`;
      this._end(reason, error.retryAfter, CLOSE_CODES[status]);
    }
  }

  private async _read(response: Response, abort: AbortController): Promise<number | undefined> {
    const { generation } = this._subscriptions;
    this._received();
    this._reading?.abort();
    this._reading = abort;
    if (this._opening === abort) this._opening = undefined;
    this._introduce(response.headers.get('Client-Id'));
    const parser = new EventParser(this._options.maxFrame);
    for await (const bytes of bytesOf(response, Infinity)) {
      this._received();
      for (const { event, data } of parser.push(bytes)) {
        if (abort.signal.aborted) return undefined;
        const read = decodeEvent(event, data);
        if (read instanceof Malformed || read instanceof Unknown) this._put(read);
        else if (read.type !== 'error')
          for (const translated of this._subscriptions.translate(read, generation))
            this._put(translated);
        // The stream ends, and another one may be about to replace it. An event stream has no
        // `auth.error`: the server also reports the end of the token as `error`.
        else if (this._isSuperseded(abort)) continue;
        else if (read.code === 'replaced' && this._overtakes) this._reopen();
        else this._put(actionOf(read) === 'reauth' ? { ...read, type: 'auth.error' } : read);
      }
    }
    return parser.retry;
  }

  /** Correct the client id if the stream got a different one than the session. */
  private _introduce(clientId: string | null): void {
    if (!this._greeting || !clientId || clientId === this._clientId) return;
    this._clientId = clientId.slice(0, 64);
    const { frame, at } = this._greeting;
    const { ref, server_time: then, ...greeting } = frame;
    const now = then && then + Math.round(this._clock.now() - at);
    this._put(compact<AuthOkFrame>({ ...greeting, client_id: this._clientId, server_time: now }));
  }

  // ---------------------------------------------------------------- internals

  /**
   * An abort controller that the end of the transport also aborts.
   *
   * @param previous Aborted now.
   */
  private _begin(previous: AbortController | undefined): AbortController {
    previous?.abort();
    const abort = new AbortController();
    const { signal } = abort;
    this._over.signal.addEventListener('abort', () => abort.abort(), { signal });
    return abort;
  }

  private _received(): void {
    this.lastReceived = this._clock.now();
  }

  private _put(read: Decoded): void {
    this._receiver?.frame(read);
  }

  private _end(reason: string, retryAfter?: number, code?: number): void {
    const receiver = this._receiver;
    this.close();
    receiver?.ended({ code, reason, retryAfter } satisfies TransportEnd);
  }
}

/** The text of a response that is not a stream; empty if it is too long or cut. */
function refusalOf(response: Response): Promise<string> {
  return textOf(response, REFUSAL_MAX).catch(() => '');
}

function isStream({ status, headers }: Response): boolean {
  return status === 200 && !!headers.get('Content-Type')?.startsWith(STREAM.Accept);
}

function authError(error: PubSubError, ref?: string): AuthErrorFrame {
  const { topic, ...info } = errorInfo(error);
  return compact<AuthErrorFrame>({ type: 'auth.error', ...info, ref });
}
