/** Signals that notify of changes, and effects that then run again. */

interface Run {
  readonly perform: () => void;
  readonly sources: Set<Set<Run>>;
  readonly ends: (() => void)[];
  queued: boolean;
  ended: boolean;
}

let current: Run | undefined;
let owner: { readonly ends: (() => void)[] } | undefined;
let queue: Run[] = [];

/** A value that effects read. */
export class Signal<T> {
  private readonly _readers = new Set<Run>();

  constructor(private _value: T) {}

  get value(): T {
    if (current) {
      this._readers.add(current);
      current.sources.add(this._readers);
    }
    return this._value;
  }

  set value(next: T) {
    if (Object.is(next, this._value)) return;
    this._value = next;
    this.touch();
  }

  /** Read the value without subscribing to changes. */
  peek(): T {
    return this._value;
  }

  /** Notify that the value was changed in place. */
  touch(): void {
    for (const run of this._readers) schedule(run);
  }
}

/** Run a function now, and again soon after a value that it read has changed. */
export function effect(perform: () => void): () => void {
  const run: Run = { perform, sources: new Set(), ends: [], queued: false, ended: false };
  const end = (): void => {
    run.ended = true;
    release(run);
  };
  owner?.ends.push(end);
  execute(run);
  return end;
}

/** Run a function. All of its effects and listeners end together. */
export function scope(build: () => void): () => void {
  const outer = owner;
  const inner = { ends: [] as (() => void)[] };
  owner = inner;
  try {
    build();
  } finally {
    owner = outer;
  }
  return () => {
    for (const end of inner.ends.splice(0).reverse()) end();
  };
}

/** Run a function when the current scope or effect ends, or the effect runs again. */
export function onEnd(end: () => void): void {
  owner?.ends.push(end);
}

/** Listen to an event until the scope ends. */
export function listen(
  target: EventTarget,
  type: string,
  listener: (event: never) => void,
  options?: AddEventListenerOptions,
): void {
  target.addEventListener(type, listener as EventListener, options);
  onEnd(() => target.removeEventListener(type, listener as EventListener, options));
}

/** Run a function at this interval in milliseconds while the page is visible. */
export function everyWhileVisible(ms: number, perform: () => void): void {
  const timer = setInterval(() => {
    if (!document.hidden) perform();
  }, ms);
  listen(document, 'visibilitychange', () => {
    if (!document.hidden) perform();
  });
  onEnd(() => clearInterval(timer));
}

function schedule(run: Run): void {
  if (run.queued || run.ended) return;
  run.queued = true;
  if (queue.push(run) === 1) queueMicrotask(flush);
}

function flush(): void {
  const runs = queue;
  queue = [];
  for (const run of runs) {
    run.queued = false;
    if (run.ended) continue;
    try {
      execute(run);
    } catch (error) {
      reportError(error);
    }
  }
}

function execute(run: Run): void {
  release(run);
  const [outerRun, outerOwner] = [current, owner];
  [current, owner] = [run, run];
  try {
    run.perform();
  } finally {
    [current, owner] = [outerRun, outerOwner];
  }
}

function release(run: Run): void {
  for (const readers of run.sources) readers.delete(run);
  run.sources.clear();
  for (const end of run.ends.splice(0).reverse()) end();
}
