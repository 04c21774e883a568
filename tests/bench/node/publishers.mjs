// Clients for Node that publish with a limited number of unanswered publishes.
// Usage: node publishers.mjs NAME PORT COUNT WINDOW; prints {cpu_us, per_second}.

import { centrifuge, nats, ours, ws } from './clients.mjs';
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
  'ws + JSON, answers by ref': async (port, meter) => {
    const socket = await ws(port);
    const waiting = new Map();
    let refs = 0;
    const publish = (data) =>
      new Promise((resolve) => {
        refs += 1;
        const message = { topic: TOPIC, type: 'token', data, id: `msg_${refs}` };
        waiting.set(`p${refs}`, resolve);
        socket.send(JSON.stringify({ type: 'publish', message, ref: `p${refs}` }));
      });
    socket.on('message', (text) => {
      const { type, ref } = JSON.parse(text);
      if (type === 'auth.ok') publishAll(meter, publish);
      waiting.get(ref)?.();
      waiting.delete(ref);
    });
  },
  '@hanzoai/pubsub': async (port, meter) => {
    const ps = await ours(port);
    await ps.connect();
    await publishAll(meter, (data) => ps.publish(TOPIC, { type: 'token', data }));
  },
  'centrifuge-js': async (port, meter) => {
    const client = await centrifuge(port);
    client.connect();
    await client.ready();
    await publishAll(meter, (data) => client.publish(TOPIC, { type: 'token', data }));
  },
  'nats.js, request': async (port, meter) => {
    const connection = await nats(port);
    const timeout = { timeout: 60_000 };
    await publishAll(meter, (data) =>
      connection.request(TOPIC, JSON.stringify({ type: 'token', data }), timeout),
    );
  },
});
