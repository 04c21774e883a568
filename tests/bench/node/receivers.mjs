// Clients for Node that read a blaster's messages.
// Usage: node receivers.mjs NAME PORT COUNT; prints {cpu_us, per_second}.

import WebSocket from 'ws';
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

// Each process loads only its own client: others may take optimizations away from it.

const ours = async (port) => {
  const { PubSub } = await import('../../../js/dist/index.js');
  const url = `ws://127.0.0.1:${port}/ws`;
  return new PubSub({ url, token: 't', transport: 'websocket', WebSocket });
};

const nats = async (port) => {
  const { connect } = await import('@nats-io/transport-node');
  return connect({ servers: `127.0.0.1:${port}`, reconnect: false });
};

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
    const { Centrifuge } = await import('centrifuge');
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
