/** Lets publishes in one by one, in order, as the queue has room (policy `block`). */

import type { Outcome } from '../session/effects.js';
import type { Publish } from '../session/events.js';
import type { Driver } from './driver.js';
import { onAbort } from './waiting.js';

/** A publish that was let in. */
export interface Entered {
  readonly settled: Promise<Outcome>;
}

interface Turn {
  readonly event: Publish;
  readonly admit: () => void;
}

/** Who waits for room in the queue of publishes. */
export class Turnstile {
  private readonly _waiting: Turn[] = [];
  private _checking = false;

  /** @param _driver Publishes. */
  constructor(private readonly _driver: Driver) {
    _driver.onHandled = () => this._check();
  }

  /**
   * Publish as soon as there is room.
   *
   * @param patience Milliseconds; then it is settled as rejected.
   * @throws The reason of the signal, where that is aborted first.
   */
  enter(event: Publish, patience: number, signal: AbortSignal | undefined): Promise<Entered> {
    return new Promise((resolve, reject) => {
      const late = `The queue of publishes had no room within ${patience} ms.`;
      const outcome = { kind: 'rejected', code: 'timeout', message: late } as const;
      const leave = (answer: () => void): void => {
        this._waiting.splice(this._waiting.indexOf(turn), 1);
        timer.cancel();
        ignore();
        answer();
        this._check();
      };
      let ignore = (): void => {};
      const abort = (): void => leave(() => reject(signal?.reason));
      const timer = this._driver.clock.callLater(patience, () => {
        leave(() => resolve({ settled: Promise.resolve(outcome) }));
      });
      const turn: Turn = {
        event,
        admit: () => leave(() => resolve({ settled: this._driver.publish(event) })),
      };
      this._waiting.push(turn);
      ignore = onAbort(signal, abort);
      if (signal?.aborted) abort();
      else this._check();
    });
  }

  /** Let in who is first in line, as long as there is room; all, once the client has ended. */
  private _check(): void {
    if (this._checking) return;
    this._checking = true;
    const { session } = this._driver;
    for (let turn = this._waiting[0]; turn; turn = this._waiting[0]) {
      const { messages, size } = turn.event;
      if (!this._driver.finished && !session.outbox.hasRoom(messages.length, size)) break;
      turn.admit();
    }
    this._checking = false;
  }
}
