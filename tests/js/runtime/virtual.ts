/**
 * A client in virtual time: a clock that the test moves, and a socket whose other end is the test.
 */

import type { Clock, TimerHandle } from '../../../js/src/clock.js';
import { PubSub, type PubSubOptions, type WebSocketConstructor } from '../../../js/src/index.js';
import { type Environment, platform } from '../../../js/src/runtime/environment.js';
import { WebSocketTransport } from '../../../js/src/transports/websocket.js';

// Load these now, so that `import()` in the client takes one turn and reads no file.
await Promise.all([
  import('../../../js/src/runtime/arguments.js'),
  import('../../../js/src/settings/hints.js'),
  import('../../../js/src/runtime/connection_warnings.js'),
  import('../../../js/src/runtime/http_operations.js'),
  import('../../../js/src/runtime/recovery.js'),
  import('../../../js/src/runtime/background.js'),
  import('../../../js/src/dialects/plain/plain_dialect.js'),
  import('../../../js/src/transports/sse.js'),
  import('../../../js/src/wire/readings.js'),
]);

interface Timer {
  readonly at: number;
  readonly callback: () => void;
}

/** Run everything that is ready, including the loading of parts. */
export async function turns(count = 20): Promise<void> {
  for (let n = 0; n < count; n += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** A clock that only `advance` moves. */
export class VirtualClock implements Clock {
  private _now = 0;
  private _wall = Date.UTC(2026, 0, 1);
  private readonly _timers = new Set<Timer>();

  now(): number {
    return this._now;
  }

  wallMs(): number {
    return this._wall;
  }

  callLater(after: number, callback: () => void): TimerHandle {
    const timer = { at: this._now + after, callback };
    this._timers.add(timer);
    return { cancel: () => void this._timers.delete(timer) };
  }

  callSoon(callback: () => void): void {
    setImmediate(callback);
  }

  /** Timers that have not fired. */
  get pending(): number {
    return this._timers.size;
  }

  /** Advance by this many milliseconds, and fire each timer at its time. */
  async advance(milliseconds: number): Promise<void> {
    const end = this._now + milliseconds;
    await turns();
    while (true) {
      const due = [...this._timers].filter(({ at }) => at <= end);
      const [first] = due.sort((one, other) => one.at - other.at);
      if (!first) break;
      this._timers.delete(first);
      this._pass(Math.max(0, first.at - this._now));
      first.callback();
      await turns();
    }
    this._pass(end - this._now);
  }

  /** Suspend the machine: the wall clock advances, and the monotonic clock too if `counted`. */
  sleep(milliseconds: number, counted: boolean): void {
    this._wall += milliseconds;
    if (counted) this._now += milliseconds;
  }

  private _pass(milliseconds: number): void {
    this._now += milliseconds;
    this._wall += milliseconds;
  }
}

type Frame = Readonly<Record<string, unknown>>;

/** A socket with one end for the client and one for the test. */
export class FakeSocket {
  binaryType = '';
  readyState = 0;
  readonly sent: Frame[] = [];
  closed: number | undefined;
  private readonly _listeners = new Map<string, ((event: object) => void)[]>();

  constructor(private readonly _peer: FakePeer) {
    _peer.sockets.push(this);
    queueMicrotask(() => {
      if (this.closed !== undefined) return;
      if (_peer.isDown) {
        this.drop();
        return;
      }
      this.readyState = 1;
      this._tell('open', {});
    });
  }

  addEventListener(type: string, listener: (event: never) => void): void {
    const listeners = this._listeners.get(type) ?? [];
    this._listeners.set(type, [...listeners, listener as (event: object) => void]);
  }

  send(data: string): void {
    const frame = JSON.parse(data) as Frame;
    this.sent.push(frame);
    for (const answer of this._peer.answer(frame)) queueMicrotask(() => this.receive(answer));
  }

  close(code = 1000): void {
    this.closed = code;
    this.readyState = 3;
  }

  /** Send a frame to the client. */
  receive(data: unknown): void {
    if (this.closed !== undefined) return;
    const isRaw = typeof data === 'string' || data instanceof ArrayBuffer;
    this._tell('message', { data: isRaw ? data : JSON.stringify(data) });
  }

  /** Lose the connection. */
  drop(code = 1006, reason = ''): void {
    this.readyState = 3;
    this._tell('close', { code, reason });
  }

  /** Fail as a socket of `ws` does: its `close` event follows up to 30 s later. */
  fail(message: string): void {
    this.readyState = 2;
    this._tell('error', { message });
  }

  /** Frames of a type that the client has sent. */
  frames(type: string): Frame[] {
    return this.sent.filter((frame) => frame['type'] === type);
  }

  private _tell(type: string, event: object): void {
    for (const listener of this._listeners.get(type) ?? []) listener(event);
  }
}

/** The `auth.ok` of a current server. */
export const CURRENT: Frame = {
  version: 1,
  features: ['ref', 'ack', 'seq', 'idempotency', 'batch', 'resume', 'meta'],
};

/** The server's end of every socket: answers as a server, or as the test specifies. */
export class FakePeer {
  readonly sockets: FakeSocket[] = [];
  /** Whether connections fail. */
  isDown = false;
  /** Types of frames that get no answer. */
  readonly silent = new Set<unknown>();
  /** Fields of `auth.ok` in addition to the client id. */
  hello: () => Frame = () => CURRENT;
  private _seq = 0;

  /** The socket of the current connection. */
  get socket(): FakeSocket {
    const last = this.sockets.at(-1);
    if (!last) throw new Error('Nobody has connected.');
    return last;
  }

  /** Send a message of a topic, with the next position. */
  message(topic: string, data: unknown): Frame {
    this._seq += 1;
    const id = `msg_${String(this._seq).padStart(26, '0')}`;
    const sender = { type: 'user', id: 'bob' };
    const numbered = 'version' in this.hello() ? { seq: this._seq } : {};
    const message = { topic, id, type: 'message', data, sender, timestamp: this._seq, ...numbered };
    return { type: 'message', message };
  }

  answer(frame: Frame): Frame[] {
    const { type, ref, topics } = frame;
    if (this.silent.has(type)) return [];
    if (type === 'auth')
      return [{ type: 'auth.ok', client_id: 'c1', user_id: 'alice', ...this.hello() }];
    if (type === 'ping') return [{ type: 'pong' }];
    if (type === 'subscribe') {
      const positions = this._seq ? { positions: {} } : {};
      return [{ type: 'subscribed', topics, timestamp: 1, ...(ref ? { ref } : {}), ...positions }];
    }
    if (type === 'presence.update' && ref) return [{ type: 'published', ref }];
    if (type === 'publish' && ref) {
      const messages = (frame['messages'] ?? [frame['message']]) as readonly Frame[];
      const results = messages.map(({ id }) => ({ id, timestamp: 1 }));
      return [{ type: 'published', ref, results }];
    }
    return [];
  }
}

/** A client whose clock and server are controlled by the test. */
export function virtualClient(
  options: PubSubOptions = {},
  changes: Partial<Environment> = {},
): { readonly ps: PubSub; readonly peer: FakePeer; readonly clock: VirtualClock } {
  const peer = new FakePeer();
  const clock = new VirtualClock();
  const Socket = function makeSocket() {
    return new FakeSocket(peer);
  } as unknown as WebSocketConstructor;
  const environment: Environment = {
    ...platform,
    clock,
    random: () => 0.5,
    dial: (_, all) => new WebSocketTransport(all, clock),
    ...changes,
  };
  const quiet = { warn: () => {}, error: () => {} };
  const given = { url: 'ws://localhost/ws', WebSocket: Socket, logger: quiet, ...options };
  const token = options.getToken ? {} : { token: 'x' };
  return { ps: new PubSub({ ...token, ...given }, environment), peer, clock };
}
