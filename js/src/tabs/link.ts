/** The transport of a tab that shares a connection with others (TAB-1). */

import { DEVELOPMENT } from '../build.js';
import type { Clock } from '../clock.js';
import type { AuthFrame, ClientFrame } from '../generated/wire.js';
import type { ClientOptions } from '../settings/options.js';
import type { Receiver, Transport, TransportEnd } from '../transports/transport.js';
import { WebSocketTransport } from '../transports/websocket.js';
import { groupOf, MOVED, newId, type RelayMessage } from './group.js';
import { startRelay } from './relay.js';

/** By client: the relay that it left because the relay did not work. */
const silent = new WeakMap<ClientOptions, string>();

/**
 * A link to the tab with the connection, which may be this one.
 *
 * The tab that holds the lock of the group runs the relay. The others wait for that lock, so the
 * platform notifies them when that tab closes or crashes. If that tab does not respond, or its
 * connection is silent, another tab steals the lock. Every tab also holds its own lock, so the
 * relay notices when the tab closes. If the platform has no locks or channels, or the server does
 * not return `ref` in its answers, the link uses its own WebSocket.
 */
export function linkTabs(options: ClientOptions, clock: Clock): Transport {
  const me = newId();
  const life = new AbortController();
  const { signal } = life;
  const over = new Promise<unknown>((resolve) => {
    signal.onabort = resolve;
  });
  let receiver: Receiver | undefined;
  let own: Transport | undefined;
  let channel: BroadcastChannel | undefined;
  let auth: AuthFrame | undefined;
  let group: string | undefined;
  let following: string | undefined;
  let refused = false;
  let receivedAt = clock.now();

  const close = (code = 1000): void => {
    receiver = undefined;
    life.abort(code);
    own?.close(code);
  };

  const finish = (end: TransportEnd): void => {
    const open = receiver;
    close(4000);
    open?.ended(end);
  };

  /** Use a WebSocket of this tab instead. */
  const goAlone = (): void => {
    if (!receiver || own) return;
    life.abort(1000);
    own = new WebSocketTransport(options, clock);
    own.open({
      opened: () => own?.send([auth as AuthFrame]),
      frame: (read) => receiver?.frame(read),
      ended: (end) => receiver?.ended(end),
    });
  };

  const post = (frame = auth as ClientFrame): void => {
    try {
      channel?.postMessage({ tab: me, frame });
    } catch {
      // Payloads are checked when they are published; this one changed since, and is not settled.
    }
  };

  const receive = ({ relay, to, begun, frame, end }: RelayMessage): void => {
    if (begun) {
      if (following) finish(MOVED);
      else post();
    }
    if (to === me && !following) {
      if (relay === silent.get(options)) steal();
      else following = relay;
    }
    if (!following || relay !== following || (to ?? me) !== me) return;
    receivedAt = clock.now();
    refused = frame?.type === 'auth.error';
    if (frame?.type === 'auth.ok' && !frame.features?.includes('ref')) goAlone();
    else if (frame) receiver?.frame(frame);
    if (end) finish(end);
  };

  const lock = (name: string, given: LockOptions, granted: () => unknown): void => {
    navigator.locks
      .request(name, given, () => signal.aborted || granted())
      .catch(({ name }: Error) => {
        if (signal.aborted) return;
        // Another tab took the lock, or this page is not allowed to use locks.
        if (name === 'AbortError') finish(MOVED);
        else goAlone();
      });
  };

  const lead = (): unknown => {
    // The relay's tab is gone without notice.
    if (following) return finish(MOVED);
    const stop = startRelay(`${group}`, options, clock, (tab, gone) =>
      lock(`${group} ${tab}`, { signal }, gone),
    );
    return over.then(() => stop(signal.reason));
  };

  const steal = (): void => {
    if (!following) lock(`${group}`, { steal: true }, lead);
  };

  const join = (name: string): void => {
    group = name;
    // Acquire the tab's own lock first: the relay treats a tab without it as gone.
    lock(`${name} ${me}`, {}, () => {
      channel = new BroadcastChannel(name);
      channel.onmessage = ({ data }) => receive(data);
      post();
      lock(name, { signal }, lead);
      return over.then(() => channel?.close());
    });
    // In the back/forward cache, a page keeps its locks, and a message of the channel ends it. Without
    // `again`, it does not request the lock again before it is shown.
    globalThis.addEventListener?.('pagehide', () => finish({ reason: '' }), life);
    // A frozen tab keeps its lock.
    const timer = clock.callLater(options.openTimeout * (0.5 + Math.random() / 4), steal, true);
    over.then(() => timer.cancel());
  };

  const authenticate = async (frame: AuthFrame): Promise<void> => {
    auth = frame;
    try {
      const name = await groupOf(options, frame.token);
      if (signal.aborted) return;
      // In Node 24 and 25, a request that waits for a lock keeps the processor busy.
      if (DEVELOPMENT && /^N.*2[45]/.test(navigator.userAgent)) goAlone();
      else if (!group) join(name);
      else if (name === group) post();
      else finish(MOVED);
    } catch {
      goAlone();
    }
  };

  return {
    incremental: true,
    get lastReceived() {
      return own?.lastReceived ?? receivedAt;
    },
    open(given) {
      receiver = given;
      // The group depends on the identity of the token, which `auth` carries.
      queueMicrotask(() => receiver?.opened());
    },
    send(frames) {
      if (own) {
        own.send(frames);
        return;
      }
      for (const frame of frames) {
        if (frame.type === 'auth') void authenticate(frame);
        else post(frame);
      }
    },
    close(code) {
      if (code === 4000 && following && !refused) silent.set(options, following);
      close(code);
    },
  };
}
