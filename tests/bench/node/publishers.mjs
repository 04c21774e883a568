// Clients for Node that publish with a limited number of unanswered publishes.
// Usage: node publishers.mjs NAME PORT COUNT WINDOW; prints {cpu_us, per_second}.

import { connect } from '@nats-io/transport-node';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { PubSub } from '../../../js/dist/index.js';
import { run, TOPIC } from './meter.mjs';

/** Unanswered publishes at a time. */
const WINDOW = Number(process.argv[5]);

const dataOf = (index) => ({ content: ' straightforward', index });

/** Publish until all are answered. */
async function publishAll(meter, publish) {
  let next = 0;
  const one = async () => {
    while (next < meter.count) {
      const data = dataOf(next);
      next += 1;
      await publish(data);
      meter.tick(meter.seen);
    }
  };
  await Promise.all(Array.from({ length: WINDOW }, one));
}

run({
  'ws + JSON, answers by ref': (port, meter) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/ws`);
    const waiting = new Map();
    let refs = 0;
    const publish = (data) =>
      new Promise((resolve) => {
        refs += 1;
        const message = { topic: TOPIC, type: 'token', data, id: `msg_${refs}` };
        waiting.set(`p${refs}`, resolve);
        socket.send(JSON.stringify({ type: 'publish', message, ref: `p${refs}` }));
      });
    socket.on('open', () => socket.send(JSON.stringify({ type: 'auth', token: 't' })));
    socket.on('message', (text) => {
      const { type, ref } = JSON.parse(text);
      if (type === 'auth.ok') publishAll(meter, publish);
      waiting.get(ref)?.();
      waiting.delete(ref);
    });
  },
  '@hanzoai/pubsub': async (port, meter) => {
    const url = `ws://127.0.0.1:${port}/ws`;
    const ps = new PubSub({ url, token: 't', transport: 'websocket', WebSocket });
    await ps.connect();
    await publishAll(meter, (data) => ps.publish(TOPIC, { type: 'token', data }));
  },
  'centrifuge-js': async (port, meter) => {
    const url = `ws://127.0.0.1:${port}/connection/websocket`;
    const client = new Centrifuge(url, { websocket: WebSocket });
    client.connect();
    await client.ready();
    await publishAll(meter, (data) => client.publish(TOPIC, { type: 'token', data }));
  },
  'nats.js, request': async (port, meter) => {
    const connection = await connect({ servers: `127.0.0.1:${port}`, reconnect: false });
    const timeout = { timeout: 60_000 };
    await publishAll(meter, (data) =>
      connection.request(TOPIC, JSON.stringify({ type: 'token', data }), timeout),
    );
  },
});
