/** The same package for a CommonJS program. */

import pubsub = require('@hanzoai/pubsub');

export async function typed(): Promise<string> {
  const ps = new pubsub.PubSub<{ 'demo.1': number }>({ token: 'ey...' });
  const sub: pubsub.Subscription<number> = await ps.subscribe('demo.1');
  // @ts-expect-error The payload of this topic is a number.
  await ps.publish('demo.1', { data: 'one' });
  await sub.unsubscribe();
  return (await ps.publish('demo.1', { data: 1 })).id;
}
