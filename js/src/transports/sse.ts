/**
 * Frames over HTTP: an event stream one way, REST calls the other (HIP-56 SSE, SSE-1).
 *
 * For networks that let no WebSocket through. The session speaks the same frames as on a socket:
 *
 * - `auth` asks `GET /v1/session`, and its answer becomes `auth.ok` or `auth.error`; a peer without
 *   that operation knows HIP-56 and nothing more. A further `auth` opens the stream anew with its
 *   token; what passes meanwhile is replayed as messages, and the session drops what it knows.
 * - The `subscribe` frames of one turn are all there is: they open one stream in place of the one
 *   before, which is read until the next one answers.
 * - `publish` and `presence.update` go through REST in their order; what waits goes in one batch.
 * - `ping` goes nowhere: keepalive comments say that the stream lives.
 */

import type { Clock } from '../clock.js';
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
  SessionInfo,
  SubscribeFrame,
} from '../generated/wire.js';
import { readError, session } from '../http/calls.js';
import { Rest } from '../http/rest.js';
import { closeCodeFor, statusOf } from '../http/status.js';
import { bareToken } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import { type Decoded, Malformed, Unknown } from '../wire/codec.js';
import { compact } from '../wire/compact.js';
import { decodeEvent } from '../wire/lenient.js';
import { EventParser } from './event_stream.js';
import { StreamPublisher } from './stream_publisher.js';
import { StreamSubscriptions } from './stream_subscriptions.js';
import type { Receiver, Transport, TransportEnd } from './transport.js';

/** Statuses by which a peer says that it has no such operation. */
const MISSING = new Set([404, 405, 501]);

interface Opened {
  readonly response: Response;
  readonly reader: ReadableStreamDefaultReader<Uint8Array>;
}

/** One session over server-sent events and REST. */
export class SseTransport implements Transport {
  readonly incremental = false;
  lastHeard: number;
  private readonly _rest: Rest;
  private readonly _publisher: StreamPublisher;
  private readonly _subscriptions: StreamSubscriptions;
  private readonly _over = new AbortController();
  private _receiver: Receiver | undefined;
  private _token: string | undefined;
  private _outgoing: ClientFrame[] = [];
  private _authenticating: AbortController | undefined;
  private _opening: AbortController | undefined;
  private _reading: AbortController | undefined;

  /**
   * @param _options `httpUrl`, `openTimeout`, `maxFrame`, `overlap` and what `Rest` uses.
   * @param _clock Time.
   * @param random For the jitter of retries.
   */
  constructor(
    private readonly _options: ClientOptions,
    private readonly _clock: Clock,
    random: () => number,
  ) {
    this.lastHeard = _clock.now();
    const tokens = {
      current: async () => this._token ?? '',
      // The session renews tokens, nobody else.
      replace: async (rejected: string) => (this._token === rejected ? undefined : this._token),
    };
    this._rest = new Rest(_options, tokens, _clock, random);
    this._publisher = new StreamPublisher(
      this._rest,
      _options.operationTimeout,
      (frame) => this._put(frame),
      (end) => this._end(end),
      this._over.signal,
    );
    this._subscriptions = new StreamSubscriptions(() => _clock.wallMs(), _options.overlap);
  }

  open(receiver: Receiver): void {
    this._receiver = receiver;
    // The first request is that of `auth`.
    queueMicrotask(() => this._receiver?.opened());
  }

  send(frames: readonly ClientFrame[]): void {
    if (this._over.signal.aborted) return;
    if (!this._outgoing.length) queueMicrotask(() => this._turn());
    this._outgoing.push(...frames);
  }

  close(): void {
    this._receiver = undefined;
    this._over.abort();
  }

  // ---------------------------------------------------------------- frames out

  private _turn(): void {
    const frames = this._outgoing;
    this._outgoing = [];
    if (this._over.signal.aborted) return;
    const subscribes: SubscribeFrame[] = [];
    for (const frame of frames) {
      if (frame.type === 'auth') void this._authenticate(frame);
      else if (frame.type === 'subscribe') subscribes.push(frame);
      else if (frame.type === 'publish' || frame.type === 'presence.update') {
        this._publisher.put(frame);
      } else if (frame.type === 'unsubscribe') {
        this._subscriptions.remove(frame.topics);
        if (this._subscriptions.empty) {
          this._opening?.abort();
          this._reading?.abort();
          this._opening = this._reading = undefined;
        }
      }
    }
    if (subscribes.length) {
      for (const told of this._subscriptions.replace(subscribes)) this._put(told);
      this._reopen();
    }
  }

  private async _authenticate({ token, ref }: AuthFrame): Promise<void> {
    const again = this._token !== undefined;
    this._token = token;
    this._authenticating?.abort();
    const abort = this._begin();
    this._authenticating = abort;
    const limits = { timeout: this._options.openTimeout, attempts: 1, signal: abort.signal };
    let info: SessionInfo | undefined;
    try {
      info = await this._rest.perform(session(), limits);
    } catch (error) {
      if (abort.signal.aborted) return;
      if (
        error instanceof ConnectionFailed ||
        error instanceof OperationTimeout ||
        error instanceof Unavailable
      ) {
        this._end({ code: undefined, reason: error.message, retryAfter: error.retryAfter });
        return;
      }
      const plain =
        error instanceof NotFound || error instanceof Unsupported || error instanceof ProtocolError;
      if (!plain) {
        this._put(authError(error, ref));
        return;
      }
    }
    if (abort.signal.aborted) return;
    this.lastHeard = this._clock.now();
    this._rest.features = new Set(info?.features);
    this._subscriptions.plain = info === undefined;
    this._put(compact<AuthOkFrame>({ client_id: '', ...info, type: 'auth.ok', ref }));
    if (again && (this._reading || this._opening)) this._reopen();
  }

  // ---------------------------------------------------------------- the stream

  private _reopen(): void {
    this._opening?.abort();
    const abort = this._begin();
    this._opening = abort;
    void this._run(abort);
  }

  private async _run(abort: AbortController): Promise<void> {
    let end: TransportEnd = { code: undefined, reason: 'The server ended the event stream.' };
    try {
      const opened = await this._open(abort);
      if (!opened) return;
      const retryAfter = await this._read(opened, abort);
      end = { ...end, retryAfter };
    } catch (error) {
      if (error instanceof RangeError) {
        end = { code: 1009, reason: `An event has more than ${this._options.maxFrame} bytes.` };
      } else {
        const { hostname } = new URL(this._options.httpUrl);
        end = { code: undefined, reason: `The event stream from ${hostname} was lost.` };
      }
    }
    if (!abort.signal.aborted) this._end(end);
  }

  /** Open a stream for the present set; another way, where the first is refused. */
  private async _open(abort: AbortController): Promise<Opened | undefined> {
    while (true) {
      const { method, path, body } = this._subscriptions.request();
      const timer = this._clock.callLater(this._options.openTimeout, () => {
        if (this._opening !== abort) return;
        this._end({ code: undefined, reason: 'The event stream was not opened in time.' });
      });
      let response: Response;
      try {
        response = await this._options.fetch(`${this._options.httpUrl}${path}`, {
          method,
          headers: {
            Accept: 'text/event-stream',
            Authorization: `Bearer ${bareToken(this._token ?? '')}`,
            ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
          },
          ...(body === undefined ? {} : { body }),
          redirect: 'manual',
          credentials: 'omit',
          cache: 'no-store',
          signal: abort.signal,
        });
      } finally {
        timer.cancel();
      }
      const { status, headers } = response;
      const kind = headers.get('Content-Type') ?? '';
      const reader = response.body?.getReader();
      if (status === 200 && reader && kind.startsWith('text/event-stream')) {
        this.lastHeard = this._clock.now();
        return { response, reader };
      }
      await reader?.cancel();
      if (MISSING.has(status) && !this._subscriptions.plain) {
        this._subscriptions.plain = true;
        continue;
      }
      if (status === 429 && this._reading) {
        // The stream that is to be replaced counts against the limit.
        this._reading.abort();
        this._reading = undefined;
        continue;
      }
      this._refuse(response);
      return undefined;
    }
  }

  /** Tell the session what a refused stream means. */
  private _refuse(response: Response): void {
    const status = statusOf(response);
    const error = readError(status, response.headers, '', this._clock.wallMs());
    if (status === 401) {
      this._put(authError(error, undefined));
    } else if ([400, 403, 422].includes(status)) {
      for (const frame of this._subscriptions.denied(error)) this._put(frame);
    } else {
      const reason = `The server answered HTTP ${status} where an event stream was asked for.`;
      this._end({ code: closeCodeFor(status), reason, retryAfter: error.retryAfter });
    }
  }

  private async _read({ reader }: Opened, abort: AbortController): Promise<number | undefined> {
    const { generation } = this._subscriptions;
    this._reading?.abort();
    this._reading = abort;
    if (this._opening === abort) this._opening = undefined;
    const parser = new EventParser(this._options.maxFrame);
    while (true) {
      const { done, value } = await reader.read();
      if (done) return parser.retry;
      this.lastHeard = this._clock.now();
      for (const { event, data } of parser.push(value)) {
        if (abort.signal.aborted) continue;
        const read = decodeEvent(event, data);
        if (read instanceof Malformed || read instanceof Unknown) this._put(read);
        else for (const told of this._subscriptions.translate(read, generation)) this._put(told);
      }
    }
  }

  // ---------------------------------------------------------------- help

  /** What ends with the transport, and may end before it. */
  private _begin(): AbortController {
    const abort = new AbortController();
    const end = (): void => abort.abort();
    this._over.signal.addEventListener('abort', end, { signal: abort.signal });
    return abort;
  }

  private _put(read: Decoded): void {
    this._receiver?.frame(read);
  }

  private _end(end: TransportEnd): void {
    const receiver = this._receiver;
    this._receiver = undefined;
    this._over.abort();
    receiver?.ended(end);
  }
}

function authError(error: unknown, ref: string | undefined): AuthErrorFrame {
  const known = error instanceof PubSubError ? error : new ProtocolError(String(error));
  return compact<AuthErrorFrame>({
    type: 'auth.error',
    code: known.code as AuthErrorFrame['code'],
    message: known.message,
    remedy: known.remedy,
    retry_after_ms: known.retryAfter,
    ref,
  });
}
