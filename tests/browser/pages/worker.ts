/**
 * A worker that subscribes for its page, or as a shared worker for all pages that connect to it.
 */

import { PubSub, type PubSubOptions } from '@hanzoai/pubsub';

interface Port {
  postMessage(message: unknown): void;
}

interface Scope {
  onconnect?: unknown;
  onmessage?: unknown;
  postMessage(message: unknown): void;
}

let started: Promise<PubSub> | undefined;
const ports: Port[] = [];

async function start(options: PubSubOptions, topic: string): Promise<PubSub> {
  const ps = new PubSub(options);
  await ps.subscribe(topic, {
    onMessage: ({ data }) => {
      for (const each of ports) each.postMessage({ data });
    },
  });
  return ps;
}

async function serve(port: Port, { options, topic }: typeof given): Promise<void> {
  started ??= start(options, topic);
  const ps = await started;
  ports.push(port);
  port.postMessage({ ready: ps.clientId });
}

const scope = globalThis as unknown as Scope;
if ('onconnect' in scope) {
  scope.onconnect = ({ ports: [port] }: MessageEvent) => {
    if (port) port.onmessage = ({ data }) => void serve(port, data);
  };
} else {
  scope.onmessage = ({ data }: MessageEvent) => void serve(scope, data);
}
