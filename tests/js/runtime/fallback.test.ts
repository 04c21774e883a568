/** The warning that server-sent events replace the WebSocket. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import WebSocket from 'ws';

import type { PubSub, PubSubOptions } from '../../../js/src/index.js';
import { WebSocketTransport } from '../../../js/src/transports/websocket.js';
import { bounded, Server } from './server.js';
import { virtualClient } from './virtual.js';

let server: Server;

before(async () => {
  server = await Server.start();
});
after(() => server.stop());

/** A socket that a proxy rejects. */
class Blocked extends WebSocket {
  constructor(url: string | URL) {
    super(String(url).replace('/ws', '/nothing-here'));
  }
}

/** A client over HTTP, and the warnings that it has logged. */
function clientWithLog(options: PubSubOptions): { ps: PubSub; warnings: string[] } {
  const warnings: string[] = [];
  // With the short waits of a test, the attempts before the fallback may count as an outage.
  const warn = (text: string) => /^No connection to /.test(text) || warnings.push(text);
  const logger = { warn, error: () => {} };
  const ps = server.client({
    token: server.token('--user', 'alice'),
    WebSocket: Blocked,
    logger,
    ...options,
  });
  return { ps, warnings };
}

async function connected(ps: PubSub): Promise<void> {
  for await (const { to } of ps.states()) if (to === 'connected') return;
}

test('the log states once that server-sent events replace the WebSocket, and why', async () => {
  const { ps, warnings } = clientWithLog({});
  await ps.subscribe('demo.cut', { onMessage: () => {} });
  assert.equal(ps.transport, 'sse');
  const again = connected(ps);
  await server.fault({ fault: 'drop', user: 'alice' });
  await bounded(again, 'the next connection');
  assert.equal(ps.transport, 'sse');
  await ps.close();
  const [warning = '', ...others] = warnings;
  assert.deepEqual(others, []);
  assert.match(
    warning,
    /^The WebSocket ws:\S+\/ws failed \(\S+ cannot be reached: .*404\); using server-sent events /,
  );
  assert.match(
    warning,
    /Check the port and path of `url`, and that proxies pass WebSocket upgrades\.$/,
  );
});

test('requested server-sent events cause no warning', async () => {
  const { ps, warnings } = clientWithLog({ transport: 'sse' });
  await ps.connect();
  assert.equal(ps.transport, 'sse');
  await ps.close();
  assert.deepEqual(warnings, []);
});

for (const isLate of [true, false]) {
  const when = isLate ? 'after it has created the client' : 'never';
  const transport = isLate ? 'websocket' : 'sse';
  test(`a program that defines a WebSocket ${when} connects by ${transport}`, async () => {
    let isDefined = false;
    const dialed: string[] = [];
    const { ps, clock } = virtualClient(
      {},
      {
        hasWebSocket: () => isDefined,
        dial: (name, options) => {
          dialed.push(name);
          return new WebSocketTransport(options, clock);
        },
      },
    );
    isDefined = isLate;
    await ps.connect();
    assert.deepEqual(dialed, [transport]);
    await ps.close();
  });
}
