/** The queue of every iteration of the client: values are added immediately, a reader waits. */

/** Maximum state changes or errors that wait for a slow reader; the oldest are dropped. */
const RECENT = 256;

/** Lets readers wait for values, or for the end. */
export class Stream {
  /** Whether it has ended; waiting values can still be taken. */
  finished = false;
  /** The error for the reader at the end. */
  error: Error | undefined;
  private _waiting: (() => void)[] = [];

  /** End it. Idempotent. */
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

  /** Wake the reader. */
  wake(): void {
    if (this._waiting.length) for (const wake of this._waiting.splice(0)) wake();
  }
}

/** The newest values. */
export class Recent<Value> extends Stream implements AsyncIterableIterator<Value> {
  private readonly _values: Value[] = [];

  /** @param _ended Called at the end. */
  constructor(private readonly _ended: () => void) {
    super();
  }

  override finish(): void {
    super.finish();
    this._ended();
  }

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

  /** Stop reading. */
  async return(): Promise<IteratorResult<Value, undefined>> {
    this.finish();
    this._values.length = 0;
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
