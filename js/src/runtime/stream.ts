/** What every iteration of the client is made of: values go in at once, a reader waits for them. */

/** Changes of state or errors that wait for a slow reader; the oldest give way. */
const RECENT = 256;

/** Where readers wait for values, or for the end. */
export class Stream {
  /** Nothing is added any more; what waits can still be taken. */
  finished = false;
  /** What the reader gets at the end. */
  error: Error | undefined;
  private _waiting: (() => void)[] = [];

  /** Add nothing any more. Does nothing at the second time. */
  finish(error?: Error): void {
    if (this.finished) return;
    this.finished = true;
    this.error = error;
    this.wake();
  }

  /** Wait for a value, or the end. */
  wait(): Promise<void> {
    return new Promise((resolve) => this._waiting.push(resolve));
  }

  /** Have the reader look again. */
  wake(): void {
    if (this._waiting.length) for (const wake of this._waiting.splice(0)) wake();
  }
}

/** The newest of the values that were added. */
export class Recent<Value> extends Stream implements AsyncIterableIterator<Value> {
  private readonly _values: Value[] = [];

  /** Add a value. */
  put(value: Value): void {
    if (this._values.push(value) > RECENT) this._values.shift();
    this.wake();
  }

  async next(): Promise<IteratorResult<Value, undefined>> {
    while (!this._values.length) {
      if (this.finished) return { done: true, value: undefined };
      await this.wait();
    }
    return { done: false, value: this._values.shift() as Value };
  }

  /** Read no further. */
  async return(): Promise<IteratorResult<Value, undefined>> {
    this.finish();
    this._values.length = 0;
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
