/** Backpressure: admits publishes one by one, in order, as the queue has room (policy `block`). */

import type { OutcomePort } from '../session/ports.js';
import type { Publish } from '../session/requests.js';
import type { Client } from './client.js';
import type { Deliveries } from './deliveries.js';

interface Turn {
  readonly publish: Publish;
  readonly signal: AbortSignal | undefined;
}

/** Publishes that wait for room in the queue. */
export class Backpressure {
  private readonly _waiting: Turn[] = [];
  private _admitting = false;

  /**
   * @param _client Calls `admit` after each call into its session.
   * @param _deliveries Skips own messages.
   * @param _outcomes Receives the outcome of a publish that is given up.
   */
  constructor(
    private readonly _client: Client,
    private readonly _deliveries: Deliveries,
    private readonly _outcomes: OutcomePort,
  ) {}

  /** Publish as soon as there is room. */
  publish(publish: Publish, signal?: AbortSignal): void {
    this._waiting.push({ publish, signal });
    this.admit();
  }

  /** Give up a publish that still waits. */
  expire(ref: number): void {
    const place = this._waiting.findIndex(({ publish }) => publish.ref === ref);
    if (place < 0) return;
    this._waiting.splice(place, 1);
    this._outcomes.settle(ref, { kind: 'rejected', code: 'timeout', message: '' });
  }

  /** Admit the first in line, as long as there is room; all, once the client has ended. */
  admit(): void {
    if (this._admitting) return;
    this._admitting = true;
    for (let turn = this._waiting[0]; turn; turn = this._waiting[0]) {
      const { publish, signal } = turn;
      const { ref, messages, size } = publish;
      // A signal may cancel several publishes, one after the other.
      if (signal?.aborted) {
        this.expire(ref);
        continue;
      }
      const { publishes } = this._client.session.operations;
      if (!this._client.over.aborted && !publishes.hasRoom(messages.length, size)) break;
      this._waiting.shift();
      this._deliveries.rememberOwn(messages);
      this._client.perform(({ operations }) => operations.publish(publish));
    }
    this._admitting = false;
  }
}
