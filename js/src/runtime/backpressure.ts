/** Backpressure: admits publishes one by one, in order, as the queue has room (policy `block`). */

import type { Clock } from '../clock.js';
import type { Outcome } from '../session/ports.js';
import type { Publish } from '../session/requests.js';
import type { Session } from '../session/session.js';
import { onAbort } from './waiting.js';

/** The client that publishes. */
export interface Publisher {
  readonly clock: Clock;
  readonly session: Session;
  readonly over: AbortSignal;
  publish(publish: Publish, end: number, signal?: AbortSignal): Promise<Outcome>;
}

interface Turn {
  readonly publish: Publish;
  readonly admit: () => void;
}

/** Publishes that wait for room in the queue. */
export class Backpressure {
  private readonly _waiting: Turn[] = [];
  private _checking = false;

  /** @param _publisher Calls `admit` after each call into its session. */
  constructor(private readonly _publisher: Publisher) {}

  /**
   * Publish as soon as there is room.
   *
   * @param end Time, by the clock; then it is settled as rejected.
   * @throws The reason of the signal, where that is aborted first.
   */
  publish(publish: Publish, end: number, signal: AbortSignal | undefined): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const { clock } = this._publisher;
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
          resolve(this._publisher.publish(publish, end, signal));
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
    const { session } = this._publisher;
    for (let turn = this._waiting[0]; turn; turn = this._waiting[0]) {
      const { messages, size } = turn.publish;
      if (!this._publisher.over.aborted && !session.publishes.hasRoom(messages.length, size)) break;
      turn.admit();
    }
    this._checking = false;
  }
}
