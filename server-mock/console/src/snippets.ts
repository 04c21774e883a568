/** Code for a first message, in three languages, with the addresses of this server. */

import type { Config } from './config.js';

/** A snippet. */
export interface Snippet {
  readonly name: string;
  /** Language or tool. */
  readonly code: string;
}

/** The snippets. They never contain a token. */
export function snippets({ ws, http, devSignIn }: Config): readonly Snippet[] {
  const token = devSignIn ? '$(hanzo-pubsub token --user me)' : '$TOKEN';
  const environment = `export HANZO_PUBSUB_URL=${ws}\nexport HANZO_PUBSUB_TOKEN=${token}`;
  return [
    {
      name: 'Python',
      code: `# ${environment.replaceAll('\n', '\n# ')}
import asyncio
from hanzoai.pubsub import PubSubClient


async def main() -> None:
    async with PubSubClient() as ps:
        await ps.publish("demo.hello", {"data": {"text": "hello"}})


asyncio.run(main())`,
    },
    {
      name: 'TypeScript',
      code: `import { PubSub } from '@hanzoai/pubsub';
// Node 20 has no WebSocket: import { WebSocket } from 'ws', and pass it in the options.

const ps = new PubSub({
  url: '${ws}',
  restUrl: '${http}',
  token: process.env.HANZO_PUBSUB_TOKEN,
});
await ps.publish('demo.hello', { data: { text: 'hello' } });
await ps.close();`,
    },
    {
      name: 'curl',
      code: `curl ${http}/v1/topics/demo.hello/messages \\
  -H "Authorization: Bearer ${token}" \\
  -H "Content-Type: application/json" \\
  -d '{"data": {"text": "hello"}}'`,
    },
  ];
}
