/**
 * Reconnecting after sleep, after the network returns, when a page becomes visible, and when a
 * transport works again.
 */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';

import { type Environment, platform } from '../../../js/src/runtime/environment.js';
import type { Receiver, Transport } from '../../../js/src/transports/transport.js';
import { CURRENT, turns, VirtualClock, virtualClient } from './virtual.js';

/** A simulated window and document. */
class Page extends EventTarget {
  readonly document: EventTarget & { visibilityState: string } = Object.assign(new EventTarget(), {
    visibilityState: 'visible',
  });

  /** Dispatch an event of the window. */
  happen(type: string, about: object = {}): void {
    this.dispatchEvent(Object.assign(new Event(type), about));
  }

  /** Show or hide the page. */
  turn(visibilityState: string): void {
    this.document.visibilityState = visibilityState;
    this.document.dispatchEvent(new Event('visibilitychange'));
  }
}

const NAMES = ['addEventListener', 'removeEventListener', 'document'] as const;
let page: Page;

beforeEach(() => {
  page = new Page();
  for (const name of NAMES) {
    const value: unknown = page[name];
    const bound: unknown = typeof value === 'function' ? value.bind(page) : value;
    Object.defineProperty(globalThis, name, { value: bound, configurable: true });
  }
});
afterEach(() => {
  for (const name of NAMES) Reflect.deleteProperty(globalThis, name);
});

/** A connected client, and its number of connections. */
async function connected() {
  const { ps, peer, clock } = virtualClient({ transport: 'websocket' });
  await ps.connect();
  await clock.advance(0);
  return { ps, peer, clock, count: () => peer.sockets.length };
}

test('the client reconnects at once when the network is back', async () => {
  const { ps, clock, count } = await connected();
  page.happen('online');
  await clock.advance(0);
  assert.equal(count(), 2);
  assert.equal(ps.state, 'connected');
  await ps.close();
});

test('a client works in a simulated browser, whose page rejects the signals of Node', async () => {
  const value = (): never => {
    throw new TypeError('`signal` is not of type `AbortSignal`.');
  };
  Object.defineProperty(globalThis, 'addEventListener', { value, configurable: true });
  // An unhandled rejection would fail the test.
  const { ps } = await connected();
  assert.equal(ps.state, 'connected');
  await ps.close();
});

test('a connection that answers survives an `offline` event', async () => {
  const { ps, clock, count } = await connected();
  await clock.advance(1_000);
  page.happen('offline');
  await clock.advance(4_000);
  page.happen('online');
  await clock.advance(0);
  assert.equal(count(), 1);
  assert.equal(ps.state, 'connected');
  await ps.close();
});

test('a connection that does not answer within three seconds of an `offline` event is closed', async () => {
  const { ps, peer, clock } = await connected();
  peer.silent.add('ping');
  await clock.advance(1_000);
  page.happen('offline');
  await clock.advance(2_999);
  assert.equal(ps.state, 'connected');
  await clock.advance(1);
  assert.equal(ps.state, 'reconnecting');
  await ps.close();
});

test('the client reconnects at once if the network returns before the answer', async () => {
  const { ps, peer, clock, count } = await connected();
  peer.silent.add('ping');
  await clock.advance(1_000);
  page.happen('offline');
  await clock.advance(1_000);
  page.happen('online');
  await clock.advance(0);
  assert.equal(count(), 2);
  await ps.close();
});

test('a waiting attempt starts at once when the network is back', async () => {
  const { ps, peer, clock, count } = await connected();
  peer.socket.drop();
  await turns();
  assert.equal(ps.state, 'reconnecting');
  page.happen('online');
  await clock.advance(0);
  assert.equal(count(), 2);
  assert.equal(ps.state, 'connected');
  await ps.close();
});

test('a page restored from the cache checks its connection, and a new page does not', async () => {
  const { ps, clock, count } = await connected();
  page.happen('pageshow', { persisted: false });
  await clock.advance(0);
  assert.equal(count(), 1);
  page.happen('pageshow', { persisted: true });
  await clock.advance(0);
  assert.equal(count(), 2);
  assert.equal(ps.state, 'connected');
  await ps.close();
});

test('a page that becomes visible keeps a connection with recent data', async () => {
  const { ps, peer, clock, count } = await connected();
  page.turn('hidden');
  page.turn('visible');
  await clock.advance(0);
  assert.equal(count(), 1);
  peer.silent.add('auth');
  peer.socket.drop();
  await turns();
  page.turn('hidden');
  await clock.advance(0);
  assert.equal(count(), 1, 'nobody looks');
  page.turn('visible');
  await clock.advance(0);
  assert.equal(count(), 2);
  await ps.close({ timeout: 0 });
});

test('a machine that was suspended reconnects, whichever clock advanced', async () => {
  for (const [milliseconds, counted] of [
    [10_000, false],
    [3_600_000, true],
  ] as const) {
    const { ps, clock, count } = await connected();
    clock.sleep(milliseconds, counted);
    await clock.advance(5_001);
    assert.equal(count(), 2, `${milliseconds} ms`);
    assert.equal(ps.state, 'connected');
    await ps.close();
  }
});

test('a hidden page with timers a minute late keeps its connection', async () => {
  const { ps, clock, count } = await connected();
  for (let minute = 0; minute < 10; minute += 1) {
    clock.sleep(59_000, true);
    await clock.advance(1_000);
  }
  assert.equal(count(), 1);
  assert.equal(ps.state, 'connected');
  await ps.close();
});

test('a closed client has no listeners and no timers', async () => {
  const { ps, clock, count } = await connected();
  await ps.close();
  page.happen('online');
  page.happen('pageshow', { persisted: true });
  clock.sleep(3_600_000, false);
  await clock.advance(60_000);
  assert.equal(count(), 1);
  assert.equal(clock.pending, 0);
});

test('a WebSocket that works again replaces the event stream', async () => {
  const clock = new VirtualClock();
  const dialed: string[] = [];
  let blocked = true;
  const dial: Environment['dial'] = (name) => {
    dialed.push(name);
    const fate = name === 'websocket' && blocked ? 'fails' : 'opens';
    return new FakeTransport(clock, name === 'websocket', fate);
  };
  const environment = { ...platform, opened: new Set<string>(), clock, random: () => 0.5, dial };
  const { ps } = virtualClient({ upgradeAfter: 60_000 }, environment);
  const connecting = ps.connect();
  await clock.advance(3_000);
  await connecting;
  assert.deepEqual(dialed, ['websocket', 'sse', 'websocket', 'sse'], 'HTTP answers in between');
  await clock.advance(60_001);
  assert.equal(dialed.length, 5, 'it is probed');
  assert.equal(ps.state, 'connected');
  blocked = false;
  await clock.advance(120_001);
  assert.deepEqual(dialed.slice(5), ['websocket', 'websocket'], 'a probe, then the connection');
  assert.equal(ps.state, 'connected');
  await ps.close();
});

/** A client whose WebSockets have the fate of the network, and whose event streams open. */
function fallingBack() {
  const clock = new VirtualClock();
  const warnings: string[] = [];
  const sockets: FakeTransport[] = [];
  const network: { fate: Fate } = { fate: 'opens' };
  const dial: Environment['dial'] = (name) => {
    const isSocket = name === 'websocket';
    const made = new FakeTransport(clock, isSocket, isSocket ? network.fate : 'opens');
    if (isSocket) sockets.push(made);
    return made;
  };
  const environment = { ...platform, opened: new Set<string>(), clock, random: () => 0.5, dial };
  const logger = { warn: (text: string) => void warnings.push(text), error: () => {} };
  const { ps } = virtualClient({ logger, upgradeAfter: 60_000 }, environment);
  return { ps, clock, warnings, sockets, network };
}

test('the warning of the fallback has the reason of the last attempt, not of an earlier one', async () => {
  const { ps, clock, warnings, sockets, network } = fallingBack();
  await ps.connect();
  network.fate = 'hangs';
  sockets[0]?.end('The first one was cut.');
  await clock.advance(60_000);
  assert.equal(ps.transport, 'sse');
  const [warning = '', ...others] = warnings;
  assert.match(warning, /failed \(it did not open in time\); using server-sent events /);
  assert.deepEqual(others, []);
  await ps.close();
});

test('a fallback after a stable WebSocket is a warning again', async () => {
  const { ps, clock, warnings, sockets, network } = fallingBack();
  await ps.connect();
  for (const fallbacks of [1, 2]) {
    network.fate = 'fails';
    sockets.at(-1)?.end('The cable is cut.');
    await clock.advance(30_000);
    assert.equal(ps.transport, 'sse');
    assert.equal(warnings.filter((text) => text.includes('server-sent')).length, fallbacks);
    network.fate = 'opens';
    await clock.advance(120_000);
    assert.equal(ps.transport, 'websocket');
  }
  await ps.close();
});

/** Whether a transport opens at once, fails at once, or does neither. */
type Fate = 'opens' | 'fails' | 'hangs';

/** Accepts the token, if it opens. */
class FakeTransport implements Transport {
  private _receiver: Receiver | undefined;

  constructor(
    private readonly _clock: VirtualClock,
    readonly incremental: boolean,
    private readonly _fate: Fate,
  ) {}

  open(receiver: Receiver): void {
    this._receiver = receiver;
    queueMicrotask(() => {
      if (this._fate === 'fails') receiver.ended({ reason: 'Blocked.' });
      else if (this._fate === 'opens') receiver.opened();
    });
  }

  end(reason: string): void {
    this._receiver?.ended({ reason });
  }

  get lastReceived(): number {
    return this._clock.now();
  }

  send(frames: readonly { readonly type: string }[]): void {
    for (const { type } of frames) {
      if (type !== 'auth') continue;
      const frame = { type: 'auth.ok', client_id: 'c', user_id: 'u', ...CURRENT } as never;
      queueMicrotask(() => this._receiver?.frame(frame));
    }
  }

  close(): void {
    this._receiver = undefined;
  }
}
