/** Backpressure: admits publishes one by one, in order, as the queue has room (policy `block`). */

import type { Outcome } from '../session/ports.js';
import type { Publish } from '../session/requests.js';
import type { Client } from './client.js';
import { onAbort } from './waiting.js';

interface Turn {
  readonly publish: Publish;
  readonly admit: () => void;
}

/** Publishes that wait for room in the queue. */
export class Backpressure {
  private readonly _waiting: Turn[] = [];
  private _checking = false;

  /** @param _client Calls `admit` after each call into its session. */
  constructor(private readonly _client: Client) {}

  /**
   * Publish as soon as there is room.
   *
   * @param end Time, by the clock; then it is settled as rejected.
   * @throws The reason of the signal, where that is aborted first.
   */
  publish(publish: Publish, end: number, signal: AbortSignal | undefined): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const { clock } = this._client;
      const message = 'The queue of publishes had no room in time.';
      const leave = (): void => {
        this._waiting.splice(this._waiting.indexOf(turn), 1);
        timer.cancel();
        ignore();
      };
      let ignore = (): void => {};
      const abort = (): void => {
        leave();
        reject(signal?.reason);
        this.admit();
      };
      const timer = clock.callLater(end - clock.now(), () => {
        leave();
        resolve({ kind: 'rejected', code: 'timeout', message });
        this.admit();
      });
      const turn: Turn = {
        publish,
        admit: () => {
          if (signal?.aborted) return abort();
          leave();
          resolve(this._client.publish(publish, end, signal));
        },
      };
      this._waiting.push(turn);
      ignore = onAbort(signal, abort);
      if (signal?.aborted) abort();
      else this.admit();
    });
  }

  /** Admit the first in line, as long as there is room; all, once the client has ended. */
  admit(): void {
    if (this._checking) return;
    this._checking = true;
    const { session } = this._client;
    for (let turn = this._waiting[0]; turn; turn = this._waiting[0]) {
      const { messages, size } = turn.publish;
      if (!this._client.over.aborted && !session.publishes.hasRoom(messages.length, size)) break;
      turn.admit();
    }
    this._checking = false;
  }
}
