// The operations of an ordinary program. The package is an argument: as ES modules, as CommonJS, or
// as a bundle.

/** A network that blocks WebSockets. */
class Blocked {
  constructor() {
    throw new Error('No WebSocket here.');
  }
}

async function overSocket({ PubSub }, { options, topic }) {
  const ps = new PubSub(options);
  const states = [];
  ps.on('state', ({ to }) => states.push(to));
  await ps.connect();
  const first = await ps.publish(topic, { type: 'word', data: 'one' });
  if (!(first.seq > 0)) throw new Error(`published without a position: ${JSON.stringify(first)}`);
  const present = new Promise((resolve) => {
    ps.subscribe(topic, { onPresence: (all) => all.length && resolve(all) });
  });
  const sub = await ps.subscribe(topic, { history: 10 });
  await ps.publishMany([
    [topic, { type: 'word', data: 'two' }],
    [topic, { type: 'word', data: 'three' }],
  ]);
  const messages = [];
  for await (const { data } of sub) if (messages.push(data) === 3) break;
  const history = [];
  for await (const { data } of ps.history(topic)) history.push(data);
  const members = (await present).map(({ user_id }) => user_id);
  const asked = (await ps.presence(topic)).map(({ user_id }) => user_id);
  await ps.close();
  return {
    messages,
    history,
    members,
    asked,
    states: states.filter((state) => state === 'connected' || state === 'closed'),
  };
}

async function overStream({ PubSub }, { options, topic }) {
  const asked = [];
  const ps = new PubSub({
    ...options,
    WebSocket: Blocked,
    fallbackFailures: 1,
    fetch: (input, init) => {
      asked.push(new Headers(init?.headers).get('accept'));
      return fetch(input, init);
    },
  });
  const sub = await ps.subscribe(topic);
  await ps.publish(topic, { type: 'word', data: 'four' });
  await ps.publish(topic, { type: 'word', data: 'five' });
  const messages = [];
  for await (const { data } of sub) if (messages.push(data) === 2) break;
  await ps.close();
  return { messages, transport: asked.includes('text/event-stream') ? 'event stream' : 'unknown' };
}

/** Errors are instances of the classes of the package, and have codes. */
async function refusals({ PubSub, PubSubError }, { options }) {
  const refused = [];
  const refuse = async (operation) => {
    try {
      await operation();
    } catch (error) {
      refused.push(`${error.name} ${error.code} ${error instanceof PubSubError}`);
    }
  };
  const ps = new PubSub(options);
  await refuse(() => ps.publish('not..a topic', { data: 1 }));
  await ps.close();
  await refuse(() => ps.connect());
  return refused;
}

export async function everyday(sdk, given) {
  const socket = await overSocket(sdk, given);
  const stream = await overStream(sdk, given);
  return { socket, stream, refusals: await refusals(sdk, given) };
}
