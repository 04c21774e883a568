/** The relay: carries the frames of all tabs over one transport. */

import type { Clock } from '../clock.js';
import type { AuthFrame, AuthOkFrame, ClientFrame, ServerFrame } from '../generated/wire.js';
import type { ClientOptions } from '../settings/options.js';
import { NOT_LOADED } from '../transports/transport.js';
import { WebSocketTransport } from '../transports/websocket.js';
import { type Decoded, Malformed, Unknown } from '../wire/decoded.js';
import { endOf, MOVED, newId, type RelayMessage, type TabMessage } from './group.js';

/** Patterns of a tab, and whether it wants their presence. */
type Patterns = Map<string, boolean>;

interface Tab {
  readonly patterns: Patterns;
  /** Its last token. */
  token?: string;
}

/**
 * Run a relay: one connection for many tabs.
 *
 * Requests carry the tab in their `ref`, so that the relay can route an answer without remembering
 * the request. Frames without a `ref` go to all tabs, and each session takes its own.
 *
 * @param group Name of the channel.
 * @param options Address of the server.
 * @param clock Time.
 * @param whenGone Calls a function when a tab is gone.
 * @returns A function that stops it; its code is for the server, if no other tab continues.
 */
export function startRelay(
  group: string,
  options: ClientOptions,
  clock: Clock,
  whenGone: (tab: string, gone: () => void) => void,
): (code: number) => void {
  const relay = newId();
  const channel = new BroadcastChannel(group);
  const tabs = new Map<string, Tab>();
  let opened = false;
  let auth: AuthFrame | undefined;
  /** What the server was sent, and whether it is still checking it. */
  let shown: AuthFrame | undefined;
  let asking = false;
  let welcome: AuthOkFrame | undefined;
  let ahead = 0;

  const upstream = new WebSocketTransport(options, clock);
  const send = (frame: ClientFrame): void => upstream.send([frame]);
  const post = (message: Omit<RelayMessage, 'relay'>): void =>
    channel.postMessage({ relay, ...message });
  const anyTab = (test: (patterns: Patterns) => boolean | undefined): boolean =>
    [...tabs.values()].some(({ patterns }) => test(patterns));

  /** Remove patterns; unsubscribe from those that no other tab has. */
  const leave = (patterns: Iterable<string>): void => {
    const topics = [...patterns].filter((pattern) => !anyTab((others) => others.has(pattern)));
    if (topics.length) send({ type: 'unsubscribe', topics });
  };

  const enter = (tab: string): Tab => {
    const patterns: Patterns = new Map();
    const entered: Tab = { patterns };
    tabs.set(tab, entered);
    whenGone(tab, () => {
      tabs.delete(tab);
      leave(patterns.keys());
    });
    return entered;
  };

  /** Send the newest token to the server; one at a time, to match the answer. */
  const present = (): void => {
    if (!opened || asking || auth === shown) return;
    shown = auth;
    asking = true;
    send(auth as AuthFrame);
  };

  const authenticate = (tab: string, frame: AuthFrame): void => {
    post({ to: tab });
    if (!auth || endOf(frame.token) > endOf(auth.token)) {
      auth = { ...auth, ...frame };
      present();
    } else if (welcome) {
      // The relay already knows that token, so the server has answered before.
      post({ to: tab, frame: { ...welcome, server_time: clock.wallMs() + ahead } });
    }
  };

  channel.onmessage = ({ data: { tab, frame } }: { data: TabMessage }) => {
    if (!tab) return;
    const known = tabs.get(tab) ?? enter(tab);
    const { patterns } = known;
    if (frame.type === 'auth') {
      known.token = frame.token;
      authenticate(tab, frame);
    } else if (frame.type === 'unsubscribe') {
      for (const topic of frame.topics) patterns.delete(topic);
      leave(frame.topics);
    } else {
      let sent: ClientFrame = frame.ref ? { ...frame, ref: `${tab}:${frame.ref}` } : frame;
      if (sent.type === 'subscribe') {
        const { topics, presence } = sent;
        for (const topic of topics) patterns.set(topic, presence !== false);
        // For each pattern, the server keeps one value of `presence`: the last one.
        const wanted = topics.some((topic) => anyTab((others) => others.get(topic)));
        sent = { ...sent, presence: wanted };
      }
      send(sent);
    }
  };
  /** The server rejected the token that it was sent: only the tabs that have it learn of it. */
  const refuse = (frame: ServerFrame): void => {
    for (const [to, { token }] of tabs) if (token === shown?.token) post({ to, frame });
    // The server closes a connection whose first token it rejects. The other tabs open the next one.
    if (!welcome) post({ end: MOVED });
    if (auth === shown) auth = undefined;
    shown = undefined;
    asking = false;
    present();
  };

  const receive = (frame: Decoded): void => {
    let to: string | undefined;
    if (frame instanceof Malformed || frame instanceof Unknown) return;
    if (frame.type === 'auth.ok') {
      welcome = frame;
      ahead = (frame.server_time ?? clock.wallMs()) - clock.wallMs();
      asking = false;
    } else if (frame.type === 'auth.error') {
      refuse(frame);
      return;
    } else if ('ref' in frame && frame.ref) {
      const [tab, ref = ''] = frame.ref.split(':');
      to = tab;
      frame = { ...frame, ref };
    }
    post({ to, frame });
    present();
  };
  // Keep the order of arrival, even if some frames take time to read.
  let last = Promise.resolve();
  upstream.open({
    opened() {
      opened = true;
      present();
    },
    frame(read) {
      last = last.then(() => read).then(receive, () => post({ end: NOT_LOADED }));
    },
    ended(end) {
      last.then(() => post({ end }));
    },
  });
  post({ begun: true });

  return (code) => {
    post({ end: MOVED });
    channel.onmessage = null;
    last.then(() => channel.close());
    // The next relay has the same client id: keep its presence meanwhile.
    upstream.close(tabs.size > 1 ? 4000 : code);
  };
}
