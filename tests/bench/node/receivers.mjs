// Clients for Node that read a blaster's messages.
// Usage: node receivers.mjs NAME PORT COUNT; prints {cpu_us, per_second}.

import { connect } from '@nats-io/transport-node';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { PubSub } from '../../../js/dist/index.js';
import { run, TOPIC } from './meter.mjs';

/** Connect with `ws`, authenticate and subscribe; then pass each message to `take`. */
function bare(port, take) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/ws`);
  const answers = [
    () => socket.send(JSON.stringify({ type: 'subscribe', topics: [TOPIC] })),
    () => socket.removeAllListeners('message').on('message', take),
  ];
  socket.on('open', () => socket.send(JSON.stringify({ type: 'auth', token: 't' })));
  socket.on('message', () => answers.shift()());
}

const ours = (port) =>
  new PubSub({ url: `ws://127.0.0.1:${port}/ws`, token: 't', transport: 'websocket', WebSocket });

const nats = async (port) => connect({ servers: `127.0.0.1:${port}`, reconnect: false });

run({
  'ws, counting only': (port, meter) => bare(port, () => meter.tick(meter.seen)),
  'ws + JSON.parse': (port, meter) =>
    bare(port, (text) => meter.tick(JSON.parse(text).message.data.index)),
  '@hanzoai/pubsub, for await': async (port, meter) => {
    for await (const { data } of await ours(port).subscribe(TOPIC)) {
      if (meter.tick(data.index)) break;
    }
  },
  '@hanzoai/pubsub, onMessage': (port, meter) =>
    ours(port).subscribe(TOPIC, { onMessage: ({ data }) => void meter.tick(data.index) }),
  'centrifuge-js': (port, meter) => {
    const client = new Centrifuge(`ws://127.0.0.1:${port}/connection/websocket`, {
      websocket: WebSocket,
    });
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
