// The clients that the benchmarks measure in Node, for a server on a port of this machine.
// Each process loads only its own client: others may take optimizations away from it.

/** A `ws` socket that has sent its token. */
export async function ws(port) {
  const { WebSocket } = await import('ws');
  const socket = new WebSocket(`ws://127.0.0.1:${port}/ws`);
  socket.on('open', () => socket.send(JSON.stringify({ type: 'auth', token: 't' })));
  return socket;
}

export async function ours(port) {
  const { WebSocket } = await import('ws');
  const { PubSub } = await import('../../../js/dist/index.js');
  const url = `ws://127.0.0.1:${port}/ws`;
  return new PubSub({ url, token: 't', transport: 'websocket', WebSocket });
}

export async function centrifuge(port) {
  const { WebSocket } = await import('ws');
  const { Centrifuge } = await import('centrifuge');
  const url = `ws://127.0.0.1:${port}/connection/websocket`;
  return new Centrifuge(url, { websocket: WebSocket });
}

export async function nats(port) {
  const { connect } = await import('@nats-io/transport-node');
  return connect({ servers: `127.0.0.1:${port}`, reconnect: false });
}
