// Clients for Node that read a blaster's messages.
// Usage: node receivers.mjs NAME PORT COUNT; prints {cpu_us, per_second}.

import { centrifuge, nats, ours, ws } from './clients.mjs';
import { run, TOPIC } from './meter.mjs';

/** Subscribe with `ws`; then pass each message to `take`. */
async function bare(port, take) {
  const socket = await ws(port);
  const answers = [
    () => socket.send(JSON.stringify({ type: 'subscribe', topics: [TOPIC] })),
    () => socket.removeAllListeners('message').on('message', take),
  ];
  socket.on('message', () => answers.shift()());
}

run({
  'ws, counting only': (port, meter) => bare(port, () => meter.tick(meter.seen)),
  'ws + JSON.parse': (port, meter) =>
    bare(port, (text) => meter.tick(JSON.parse(text).message.data.index)),
  '@hanzoai/pubsub, for await': async (port, meter) => {
    for await (const { data } of await (await ours(port)).subscribe(TOPIC)) {
      if (meter.tick(data.index)) break;
    }
  },
  '@hanzoai/pubsub, onMessage': async (port, meter) => {
    const onMessage = ({ data }) => void meter.tick(data.index);
    (await ours(port)).subscribe(TOPIC, { onMessage });
  },
  'centrifuge-js': async (port, meter) => {
    const client = await centrifuge(port);
    const subscription = client.newSubscription(TOPIC);
    subscription.on('publication', ({ data }) => meter.tick(data.data.index));
    subscription.subscribe();
    client.connect();
  },
  'nats.js, for await': async (port, meter) => {
    for await (const message of (await nats(port)).subscribe(TOPIC)) {
      if (meter.tick(message.json().data.index)) break;
    }
  },
  'nats.js, callback': async (port, meter) => {
    const callback = (_, message) => meter.tick(message.json().data.index);
    (await nats(port)).subscribe(TOPIC, { callback });
  },
});
