/** A chat room in React: messages, who is there, and whether the connection stands. */

import { createHooks } from '@hanzoai/pubsub/react';
import { type FormEvent, useState } from 'react';

const { PubSubProvider, useTopic, usePresence, useConnectionState } = createHooks<{
  [topic: `demo.chat.${string}`]: { readonly text: string };
}>();

/** Outside of any component, so that a page that is built anew keeps its connection. */
const options = {
  url: 'wss://pubsub.example.com:8057/ws',
  getToken: async () => (await fetch('/pubsub-token')).text(),
  shareTabs: true,
};

export function App({ session }: { readonly session: string }) {
  return (
    <PubSubProvider options={options}>
      <Connection />
      <Room session={session} />
    </PubSubProvider>
  );
}

function Connection() {
  const state = useConnectionState();
  return state === 'connected' ? null : <p role="status">{state} …</p>;
}

function Room({ session }: { readonly session: string }) {
  const topic = `demo.chat.${session}` as const;
  const { messages, status, error, publish } = useTopic(topic, { history: 20, limit: 200 });
  const { members, update } = usePresence(topic);
  const [text, setText] = useState('');

  async function send(event: FormEvent) {
    event.preventDefault();
    setText('');
    await publish({ data: { text } });
    await update({ status: 'here' });
  }

  if (error) return <p role="alert">{error.message}</p>;
  return (
    <section aria-busy={status !== 'live'}>
      <ul aria-label="Present">
        {[...members.values()].map(({ client_id, name, status }) => (
          <li key={client_id}>
            {name} {status}
          </li>
        ))}
      </ul>
      <ol aria-label="Messages">
        {messages.map(({ id, sender, data }) => (
          <li key={id}>
            <b>{sender?.id}</b> {data.text}
          </li>
        ))}
      </ol>
      <form onSubmit={send}>
        <input
          aria-label="Message"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            void update({ status: 'typing' });
          }}
        />
      </form>
    </section>
  );
}
