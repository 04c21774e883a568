/** The relay: carries the frames of all tabs over one transport. */

import type { Clock } from '../clock.js';
import type { AuthFrame, AuthOkFrame, ClientFrame } from '../generated/wire.js';
import type { ClientOptions } from '../settings/options.js';
import { NOT_LOADED } from '../transports/transport.js';
import { WebSocketTransport } from '../transports/websocket.js';
import { type Decoded, Malformed, Unknown } from '../wire/decoded.js';
import { endOf, MOVED, newId, type RelayMessage, type TabMessage } from './group.js';

/** Patterns of a tab, and whether it wants their presence. */
type Patterns = Map<string, boolean>;

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
  const tabs = new Map<string, Patterns>();
  /** The last token of each tab. */
  const tokens = new Map<string, string>();
  let opened = false;
  /** The newest token, the one that the server was sent, and the last one that it accepted. */
  let auth: AuthFrame | undefined;
  let shown: AuthFrame | undefined;
  let accepted: AuthFrame | undefined;
  let welcome: AuthOkFrame | undefined;
  let ahead = 0;

  const upstream = new WebSocketTransport(options, clock);
  const send = (frame: ClientFrame): void => upstream.send([frame]);
  const post = (message: Omit<RelayMessage, 'relay'>): void =>
    channel.postMessage({ relay, ...message });
  const anyTab = (test: (patterns: Patterns) => boolean | undefined): boolean =>
    [...tabs.values()].some(test);

  /** Remove patterns; unsubscribe from those that no other tab has. */
  const leave = (patterns: Iterable<string>): void => {
    const topics = [...patterns].filter((pattern) => !anyTab((others) => others.has(pattern)));
    if (topics.length) send({ type: 'unsubscribe', topics });
  };

  const enter = (tab: string): Patterns => {
    const patterns: Patterns = new Map();
    tabs.set(tab, patterns);
    whenGone(tab, () => {
      tabs.delete(tab);
      tokens.delete(tab);
      leave(patterns.keys());
    });
    return patterns;
  };

  /** Send the newest token to the server; one at a time, to match the answer. */
  const present = (): void => {
    if (!opened || shown !== accepted || auth === shown) return;
    shown = auth;
    send(auth as AuthFrame);
  };

  const authenticate = (tab: string, frame: AuthFrame): void => {
    post({ to: tab });
    tokens.set(tab, frame.token);
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
    const patterns = tabs.get(tab) ?? enter(tab);
    if (frame.type === 'auth') {
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

  const receive = (frame: Decoded): void => {
    let to: string | undefined;
    if (frame instanceof Malformed || frame instanceof Unknown) return;
    if (frame.type === 'auth.ok') {
      welcome = frame;
      ahead = (frame.server_time ?? clock.wallMs()) - clock.wallMs();
      accepted = shown;
    } else if (frame.type === 'auth.error') {
      for (const [tab, token] of tokens) if (token === shown?.token) post({ to: tab, frame });
      // The server closes a connection whose first token it rejects. Other tabs open the next one.
      if (!welcome) post({ end: MOVED });
      if (auth === shown) auth = accepted;
      shown = accepted;
      present();
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
