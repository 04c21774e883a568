/** Changes of state, as a program reads them. */

import type { StateChange } from '../values.js';

const KEPT = 256;

/** An async iterator over changes of state; ends when the client has ended. */
export class StateStream implements AsyncIterableIterator<StateChange> {
  private readonly _changes: StateChange[] = [];
  private _waiters: (() => void)[] = [];
  private _finished = false;

  /** @param _ended Called when nobody reads it any more. */
  constructor(private readonly _ended: (stream: StateStream) => void) {}

  /** Add a change; the oldest gives way. */
  put(change: StateChange): void {
    this._changes.push(change);
    if (this._changes.length > KEPT) this._changes.shift();
    this._wake();
  }

  /** No change follows. */
  finish(): void {
    this._finished = true;
    this._ended(this);
    this._wake();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<StateChange, undefined>> {
    while (true) {
      const value = this._changes.shift();
      if (value) return { done: false, value };
      if (this._finished) return { done: true, value: undefined };
      await new Promise<void>((resolve) => this._waiters.push(resolve));
    }
  }

  /** Read no further. */
  async return(): Promise<IteratorResult<StateChange, undefined>> {
    this._changes.length = 0;
    this.finish();
    return { done: true, value: undefined };
  }

  private _wake(): void {
    const waiters = this._waiters;
    this._waiters = [];
    for (const wake of waiters) wake();
  }
}

/** Why a client is not connected, in words. */
export function reasonOf(change: StateChange | undefined): string {
  if (!change) return 'nothing was tried yet.';
  const said = change.reason.replace(/\.$/, '') || `the state is ${change.to}`;
  return change.code === undefined ? `${said}.` : `${said} (${change.code}).`;
}
