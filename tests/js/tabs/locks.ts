/** Web Locks within one process, because Node has them only from version 24. */

import { setMaxListeners } from 'node:events';

interface Request {
  readonly callback: () => unknown;
  readonly settle: (result: unknown) => void;
  readonly fail: (error: unknown) => void;
}

interface Options {
  readonly signal?: AbortSignal;
  readonly steal?: boolean;
}

/** The part of `navigator.locks` for exclusive locks. */
export class Locks {
  private readonly _held = new Map<string, Request>();
  private readonly _waiting = new Map<string, Request[]>();

  request(name: string, options: Options, callback: () => unknown): Promise<unknown> {
    return new Promise((settle, fail) => {
      const request: Request = { callback, settle, fail };
      const waiting = this._waiting.get(name) ?? [];
      this._waiting.set(name, waiting);
      if (options.steal) {
        this._held.get(name)?.fail(new DOMException('The lock was stolen.', 'AbortError'));
        this._held.delete(name);
        waiting.unshift(request);
      } else {
        waiting.push(request);
      }
      if (options.signal) setMaxListeners(0, options.signal);
      options.signal?.addEventListener('abort', () => {
        const at = waiting.indexOf(request);
        if (at < 0) return;
        waiting.splice(at, 1);
        fail(new DOMException('The request was aborted.', 'AbortError'));
      });
      setImmediate(() => this._grant(name));
    });
  }

  /** Names of the held locks. */
  get held(): string[] {
    return [...this._held.keys()];
  }

  private _grant(name: string): void {
    const next = this._held.has(name) ? undefined : this._waiting.get(name)?.shift();
    if (!next) return;
    this._held.set(name, next);
    const release = (): void => {
      if (this._held.get(name) === next) this._held.delete(name);
      this._grant(name);
    };
    Promise.resolve(next.callback()).then(next.settle, next.fail).finally(release);
  }
}
