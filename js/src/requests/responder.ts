/// <reference lib="esnext.disposable" preserve="true" />

/** `Responder`: answers the requests of a topic with what a handler returns. */

import { DEVELOPMENT } from '../build.js';
import { driverOf } from '../client.js';
import { ClosedError, Conflict, ReplyError } from '../errors.js';
import { showOnly } from '../inspection.js';
import { logText } from '../log_text.js';
import { decide } from '../runtime/decisions.js';
import type { Subscription } from '../runtime/subscription.js';
import { checkNames, checkNumber, checkType } from '../settings/checks.js';
import type { Gap, Message, Outgoing } from '../values.js';
import { answerTo, isOwnReplyTopic, replyToOf } from './messages.js';
import type { Client } from './requester.js';

/** Called with a request; returns JSON, or a promise of it. */
export type RequestHandler = (request: Message) => unknown;

/** Options of `respond`. */
export interface RespondOptions {
  /** Message type of requests; default `request`. The responder ignores other messages. */
  readonly type?: string | undefined;
  /** Number of requests handled at the same time, 1 to 1,000; default 10. More requests wait. */
  readonly concurrency?: number | undefined;
  /**
   * Called with a request and its reply topic; decides whether to answer there. If it throws, the
   * responder does not answer. Without it, the responder answers only below `<topic>.replies` of the
   * request, and below `user.<sender>`.
   */
  readonly allow?: ((request: Message, replyTo: string) => boolean) | undefined;
}

/** What the sender of a request learns of an error that is not for it. */
const failure = () => new ReplyError('The responder failed to answer the request.');

/** Answers requests until it is closed; created by `respond`. */
export class Responder implements AsyncDisposable {
  private readonly _running = new Set<Promise<void>>();
  private _subscription!: Subscription;
  private _hasMissed = false;
  private _hasWarned = false;

  /** @internal Created by `respond`. */
  constructor(
    private readonly _client: Client,
    private readonly _handler: RequestHandler,
    private readonly _options: RespondOptions,
  ) {
    if (DEVELOPMENT) checkNames('options', _options, ['type', 'concurrency', 'allow']);
    checkType('handler', _handler ?? null, 'function');
    checkType('allow', _options.allow, 'function');
    checkNumber('concurrency', _options.concurrency ?? 10, [1, 1_000, 'a number of requests']);
  }

  /** @internal Subscribe, and begin to answer. */
  async open(topics: string | readonly string[]): Promise<this> {
    this._subscription = await this._client.subscribe(topics, { onGap: (gap) => this._miss(gap) });
    this._read().catch((error) => {
      if (!(error instanceof ClosedError)) this._report(error);
    });
    return this;
  }

  /** Whether it still accepts requests. */
  get active(): boolean {
    return this._subscription.active;
  }

  /**
   * Accept no more requests, and wait for running handlers. Idempotent.
   *
   * @param options `timeout`: milliseconds to wait; default 5,000.
   */
  async close({ timeout = 5_000 }: { readonly timeout?: number | undefined } = {}): Promise<void> {
    await this._subscription.unsubscribe();
    const { clock } = driverOf(this._client);
    await new Promise<void>((resolve) => {
      const timer = clock.callLater(timeout, resolve);
      Promise.all(this._running).then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private async _read(): Promise<void> {
    const { type = 'request', concurrency = 10 } = this._options;
    for await (const message of this._subscription) {
      const replyTo = replyToOf(message);
      if (message.type !== type || replyTo === undefined) continue;
      const answered = this._answer(message, replyTo).finally(() => {
        this._running.delete(answered);
      });
      this._running.add(answered);
      while (this._running.size >= concurrency) await Promise.race(this._running);
    }
  }

  private async _answer(request: Message, replyTo: string): Promise<void> {
    let answer: Outgoing;
    const allow = this._options.allow ?? isOwnReplyTopic;
    const decision = decide(allow, [request, replyTo], (error) => this._report(error));
    // Without a decision there is no topic to answer on, not even with an error.
    if (decision === false) this._warn(request, replyTo);
    if (!decision) return;
    try {
      answer = answerTo(request, await this._handler(request));
    } catch (error) {
      if (!(error instanceof ReplyError)) this._report(error);
      answer = answerTo(request, error instanceof ReplyError ? error : failure());
    }
    if (await this._publish(replyTo, answer)) return;
    // Without an answer the request times out.
    await this._publish(replyTo, answerTo(request, failure()));
  }

  /** Publish an answer; false if it is not JSON or too large. */
  private async _publish(replyTo: string, answer: Outgoing): Promise<boolean> {
    try {
      await this._client.publish(replyTo, answer);
    } catch (error) {
      // Another responder was first, or the client has ended.
      if (error instanceof Conflict || error instanceof ClosedError) return true;
      this._report(error);
      const { code } = error as { code?: unknown };
      return code !== 'invalid_payload' && code !== 'payload_too_large';
    }
    return true;
  }

  private _report(error: unknown): void {
    driverOf(this._client).listeners.report(error);
  }

  /** Log the first gap: nothing remains to be answered, the senders have timed out. */
  private _miss({ topic, reason }: Gap): void {
    if (this._hasMissed) return;
    this._hasMissed = true;
    driverOf(this._client).options.logger.warn(
      `A responder may have missed requests on topic ${logText(topic)} (${reason}). Their senders ` +
        'get RequestTimeout. Further gaps of this responder are not logged.',
    );
  }

  private _warn({ id, topic }: Message, replyTo: string): void {
    if (this._hasWarned) return;
    this._hasWarned = true;
    driverOf(this._client).options.logger.warn(
      `The request ${logText(id)} on topic ${logText(topic)} asks for its reply on ` +
        `${logText(replyTo)}, which belongs to neither the topic nor the sender; this responder does ` +
        'not answer such requests. Pass `allow` to answer it.',
    );
  }
}
if (DEVELOPMENT) showOnly(Responder, 'active');
