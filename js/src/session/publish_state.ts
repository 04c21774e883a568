/** One unsettled publish: its messages and their results. */

import type { PublishResult } from '../generated/wire.js';
import type { Publish } from './requests.js';

/** One publish; a message has no result until it is answered. */
export class PublishState {
  /** Part of it may be published already. */
  _sent = false;
  /** It was in flight when a connection dropped: a rejection does not show its outcome. */
  _doubted = false;
  /** A publish of the same key that the server may have published before this one. */
  _newer: PublishState | undefined;
  /** The outcome of each answered message, by slot. */
  readonly _results: PublishResult[] = [];

  /**
   * @param _number Its position in the order.
   * @param _publish The publish of the program.
   * @param _ref Its `ref` in frames.
   * @param _since Total milliseconds of delay by the rate limit when it was last queued; infinite
   *   after it counted as slowed.
   */
  constructor(
    readonly _number: number,
    readonly _publish: Publish,
    readonly _ref: string,
    public _since: number,
  ) {}

  /** The slots of the messages without an answer. */
  _unanswered(): number[] {
    const open: number[] = [];
    for (let slot = 0; slot < this._publish.messages.length; slot += 1) {
      if (!this._results[slot]) open.push(slot);
    }
    return open;
  }
}
