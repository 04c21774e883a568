/** A chat of the AI SDK whose answers arrive over a topic. */

import { PubSub } from '@hanzoai/pubsub';
import { HanzoChatTransport } from '@hanzoai/pubsub/ai-sdk';
import { StrictMode, useState } from 'react';
import { createRoot } from 'react-dom/client';

/** The part of `useChat` that the page uses. */
interface Chat {
  readonly messages: readonly {
    readonly id: string;
    readonly role: string;
    readonly parts: readonly { readonly type: string; readonly text?: string }[];
  }[];
  readonly status: string;
  readonly error: Error | undefined;
  readonly sendMessage: (message: { text: string }) => Promise<void>;
  readonly stop: () => Promise<void>;
}

// The types of this package fail the checks of this repository.
const { useChat } = (await import('@ai-sdk/react' as string)) as {
  useChat(options: { id: string; transport: HanzoChatTransport; resume: boolean }): Chat;
};

/** The route of the test: starts an answer and returns the id of its stream. */
declare const begin: (body: string) => Promise<string>;

const transport = new HanzoChatTransport({
  client: new PubSub(given.options),
  topic: (chat) => `demo.session.${chat}`,
  fetch: async (_, init) => Response.json({ stream: await begin(String(init?.body)) }),
});

function ChatPage() {
  const [text, setText] = useState('');
  const { messages, sendMessage, status, error, stop } = useChat({
    id: 'abc',
    transport,
    resume: true,
  });
  return (
    <main data-status={status}>
      <ol>
        {messages.map(({ id, role, parts }) => (
          <li key={id} data-role={role}>
            {parts.map((part) => (part.type === 'text' ? part.text : '')).join('')}
          </li>
        ))}
      </ol>
      <p role="alert">{error?.message}</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void sendMessage({ text });
        }}
      >
        <input aria-label="Message" value={text} onChange={({ target }) => setText(target.value)} />
      </form>
      <button type="button" onClick={() => void stop()}>
        Stop
      </button>
    </main>
  );
}

createRoot(document.body.appendChild(document.createElement('div'))).render(
  <StrictMode>
    <ChatPage />
  </StrictMode>,
);
