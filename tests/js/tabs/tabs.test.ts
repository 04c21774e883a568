import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import WebSocket from 'ws';

import type {
  Message,
  PubSub,
  PubSubOptions,
  WebSocketConstructor,
} from '../../../js/src/index.js';
import { bounded, deferred, Server } from '../runtime/server.js';
import { Locks } from './locks.js';

/** What went to the server and how often, over all sockets of a test. */
class Wire {
  readonly sockets: WebSocket[] = [];
  readonly sent: { readonly type: string; readonly [key: string]: unknown }[] = [];

  /** Sockets that are open at this moment. */
  get open(): number {
    return this.sockets.filter(({ readyState }) => readyState <= WebSocket.OPEN).length;
  }

  count(type: string): number {
    return this.sent.filter((frame) => frame.type === type).length;
  }

  /** The constructor that a client takes. */
  readonly WebSocket: WebSocketConstructor = (() => {
    const wire = this;
    return class extends WebSocket {
      constructor(url: string) {
        super(url);
        wire.sockets.push(this);
      }
      override send(data: string): void {
        wire.sent.push(JSON.parse(data));
        super.send(data);
      }
    };
  })() as unknown as WebSocketConstructor;
}

let server: Server;
let token: string;
let service: string;
const locks = new Locks();

before(async () => {
  Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
  server = await Server.start(
    '--publish-rate-service',
    '10000',
    '--publish-rate-user',
    '10000',
    '--history-max-messages',
    '5000',
  );
  token = server.token('--user', 'alice', '--org', 'acme');
  service = server.token('--user', 'worker', '--org', 'acme', '--service');
});
after(() => server.stop());

function tab(wire: Wire, options: PubSubOptions = {}): PubSub {
  return server.client({ token, shareTabs: true, WebSocket: wire.WebSocket, ...options });
}

/** Have everything that a subscription gets written down, until so much has come. */
function collector(count: number): {
  readonly got: unknown[];
  readonly all: Promise<void>;
  readonly onMessage: (message: Message) => void;
} {
  const got: unknown[] = [];
  const { promise, resolve } = deferred<void>();
  const onMessage = ({ data }: Message): void => {
    got.push(data);
    if (got.length === count) resolve();
  };
  return { got, all: promise, onMessage };
}

test('tabs of one identity share one socket, and each gets every message', async () => {
  const wire = new Wire();
  const tabs = Array.from({ length: 20 }, () => tab(wire));
  const seen = await Promise.all(
    tabs.map(async (one) => {
      const seen = collector(3);
      await one.subscribe('demo.shared', { onMessage: seen.onMessage });
      return seen;
    }),
  );
  assert.equal(wire.open, 1);
  for (const [n, one] of tabs.slice(0, 3).entries()) await one.publish('demo.shared', { data: n });
  await bounded(Promise.all(seen.map(({ all }) => all)), 'every message in every tab');
  for (const { got } of seen) assert.deepEqual(got, [0, 1, 2]);
  assert.equal(wire.sockets.length, 1);
  await Promise.all(tabs.map((one) => one.close()));
  assert.equal(wire.open, 0);
});

test('another tab goes on when the one with the socket is closed, and nothing is lost', async () => {
  const wire = new Wire();
  const publisher = server.client({ token: service });
  const tabs = Array.from({ length: 21 }, () => tab(wire));
  const total = 400;
  const seen = tabs.map(() => collector(total));
  for (const [n, one] of tabs.entries()) {
    await one.subscribe('demo.handover', { onMessage: seen[n]?.onMessage });
  }
  let published = 0;
  const publishing = (async () => {
    for (; published < total; published += 1) {
      await publisher.publish('demo.handover', { data: published });
    }
  })();
  for (let turn = 1; turn <= 20; turn += 1) {
    const goal = turn * 15;
    const last = seen[20]?.got ?? [];
    while (last.length < goal) await new Promise((resolve) => setImmediate(resolve));
    await tabs[turn - 1]?.close();
  }
  await bounded(publishing, 'the publisher');
  await bounded((seen[20] as (typeof seen)[0]).all, 'the last message');
  assert.deepEqual(
    seen[20]?.got,
    Array.from({ length: total }, (_, n) => n),
  );
  for (const [n, { got }] of seen.entries()) {
    assert.deepEqual(
      got,
      got.map((_, at) => at),
      `tab ${n}`,
    );
  }
  assert.equal(wire.open, 1);
  await tabs[20]?.close();
  await publisher.close();
});
