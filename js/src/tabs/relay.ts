/** The tab that has the connection: carries the frames of all tabs over one transport. */

import type { Clock } from '../clock.js';
import type { AuthFrame, AuthOkFrame, ClientFrame } from '../generated/wire.js';
import type { ClientOptions } from '../settings/options.js';
import { WebSocketTransport } from '../transports/websocket.js';
import { type Decoded, Malformed, Unknown } from '../wire/decoded.js';
import { endOf, MOVED, newId, type Said, type Told } from './group.js';

/** Patterns of a tab, and whether it wants presence of them. */
type Patterns = Map<string, boolean>;

/**
 * Run a relay: one connection for many tabs.
 *
 * Requests carry the tab in their `ref`, so that an answer finds its way back and nothing has to be
 * remembered of it. What has no `ref` goes to all tabs; each session takes what is its own.
 *
 * @param group Name of the channel.
 * @param options Where the server is.
 * @param clock Time.
 * @param whenGone Calls a function when a tab is no more.
 * @returns Stops it; the code is for the server, where no other tab goes on.
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
  let opened = false;
  let auth: AuthFrame | undefined;
  let shown: AuthFrame | undefined;
  /** Whose token is the newest; and whose the server looks at. */
  let newest: string | undefined;
  let asking: string | undefined;
  let welcome: AuthOkFrame | undefined;
  let ahead = 0;

  const upstream = new WebSocketTransport(options, clock);
  const send = (frame: ClientFrame): void => upstream.send([frame]);
  const post = (told: Omit<Told, 'relay'>): void => channel.postMessage({ relay, ...told });
  const anyTab = (test: (patterns: Patterns) => boolean | undefined): boolean =>
    [...tabs.values()].some(test);

  /** Give up patterns; unsubscribe from those that no other tab has. */
  const leave = (patterns: Iterable<string>): void => {
    const topics = [...patterns].filter((pattern) => !anyTab((others) => others.has(pattern)));
    if (topics.length) send({ type: 'unsubscribe', topics });
  };

  const enter = (tab: string): Patterns => {
    const patterns: Patterns = new Map();
    tabs.set(tab, patterns);
    whenGone(tab, () => {
      tabs.delete(tab);
      leave(patterns.keys());
    });
    return patterns;
  };

  /** Show the server the newest token; one at a time, so that an answer is known to be whose. */
  const present = (): void => {
    if (!opened || asking || auth === shown) return;
    shown = auth;
    asking = newest;
    send(auth as AuthFrame);
  };

  const authenticate = (tab: string, frame: AuthFrame): void => {
    post({ to: tab });
    if (!auth || endOf(frame.token) > endOf(auth.token)) {
      newest = tab;
      auth = { ...auth, ...frame };
      present();
    } else if (welcome) {
      // That one is known, so the server has answered before.
      post({ to: tab, frame: { ...welcome, server_time: clock.wallMs() + ahead } });
    }
  };

  channel.onmessage = ({ data: { tab, said } }: { data: Said }) => {
    if (!tab) return;
    const patterns = tabs.get(tab) ?? enter(tab);
    if (said.type === 'auth') {
      authenticate(tab, said);
    } else if (said.type === 'unsubscribe') {
      for (const topic of said.topics) patterns.delete(topic);
      leave(said.topics);
    } else {
      let sent: ClientFrame = said.ref ? { ...said, ref: `${tab}:${said.ref}` } : said;
      if (sent.type === 'subscribe') {
        const { topics, presence } = sent;
        for (const topic of topics) patterns.set(topic, presence !== false);
        // Of one pattern the server keeps one answer to this, the last that it got.
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
      asking = undefined;
    } else if (frame.type === 'auth.error') {
      to = asking;
      if (auth === shown) auth = undefined;
      asking = shown = undefined;
    } else if ('ref' in frame && frame.ref) {
      const [tab, ref = ''] = frame.ref.split(':');
      to = tab;
      frame = { ...frame, ref };
    }
    post({ to, frame });
    present();
  };
  // In the order in which it came, though a part of it may take its time to be read.
  let last = Promise.resolve();
  upstream.open({
    opened() {
      opened = true;
      present();
    },
    frame(read) {
      last = last
        .then(() => read)
        .then(receive, () => {
          post({ end: { code: undefined, reason: 'A part of the client did not load.' } });
        });
    },
    ended(end) {
      last.then(() => post({ end }));
    },
  });
  post({ begun: true });

  return (code) => {
    post({ end: MOVED });
    channel.close();
    // The next relay has the same client id: keep its presence meanwhile.
    upstream.close(tabs.size > 1 ? 4000 : code);
  };
}
