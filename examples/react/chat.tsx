/** A chat room in React: messages, present and typing users, and the connection state. */

import type { PubSubOptions } from '@hanzoai/pubsub';
import { createHooks } from '@hanzoai/pubsub/react';
import { type FormEvent, useEffect, useRef, useState } from 'react';

const { PubSubProvider, useTopic, useHistory, usePresence, useConnection } = createHooks<{
  [topic: `demo.room.${string}`]: { readonly text: string };
}>();

/** Milliseconds without a keystroke after which a user is no longer shown as typing. */
const PAUSE = 3_000;

/** Milliseconds after which a message that the server has not accepted is shown as failed. */
const PATIENCE = 5_000;

interface AppProps {
  /** The same object for the lifetime of the page. */
  readonly options: PubSubOptions;
  readonly session: string;
}

export function App({ options, session }: AppProps) {
  return (
    <PubSubProvider options={options}>
      <h1>Chat</h1>
      <Connection />
      <Room session={session} />
    </PubSubProvider>
  );
}

function Connection() {
  const { state, failure, retry } = useConnection();
  if (state === 'connected') return null;
  if (state !== 'failed')
    return <p role="status">{failure ? 'No connection. Trying again …' : 'Connecting …'}</p>;
  const isLoggedOut = failure?.code === 'auth_refused';
  return (
    <p role="status">
      {isLoggedOut ? 'Log in again, then' : 'Not connected.'} <Again onClick={retry} />
    </p>
  );
}

function Again({ onClick }: { readonly onClick: () => void }) {
  return (
    <button type="button" onClick={onClick}>
      Try again
    </button>
  );
}

function Room({ session }: { readonly session: string }) {
  const topic = `demo.room.${session}` as const;
  const options = { history: 20, limit: 200 };
  const { messages: newest, pending, status, error, send, retry } = useTopic(topic, options);
  const older = useHistory(topic, newest);
  const { members, update } = usePresence(topic);
  const [touch, rest] = useTyping((status) => {
    // Ignore a failure: the next update replaces it.
    update({ status }).catch(() => {});
  });
  const [text, setText] = useState('');

  function submit(event: FormEvent) {
    event.preventDefault();
    if (!text) return;
    send({ data: { text } }, { timeout: PATIENCE });
    setText('');
    rest();
  }

  if (error) {
    return (
      <p role="alert">
        {error.message} <Again onClick={retry} />
      </p>
    );
  }
  return (
    <section aria-busy={status !== 'live'}>
      <ul aria-label="Present">
        {[...members.values()].map(({ client_id, name, status }) => (
          <li key={client_id}>
            {name} {status}
          </li>
        ))}
      </ul>
      {older.hasOlder && (
        <button type="button" disabled={older.loadingOlder} onClick={older.loadOlder}>
          Older messages
        </button>
      )}
      {older.error && <p role="alert">{older.error.message}</p>}
      <ol aria-label="Messages">
        {older.messages.map(({ id, sender, data }) => (
          <li key={id}>
            <b>{sender?.id}</b> {data.text}
          </li>
        ))}
        {pending.map(({ id, data, status, error, retry, discard }) => (
          <li key={id} aria-busy={status !== 'failed'}>
            {data.text}{' '}
            {status === 'failed' && (
              <span role="alert">
                Not sent: {error?.message} <Again onClick={retry} />
                <button type="button" onClick={discard}>
                  Discard
                </button>
              </span>
            )}
          </li>
        ))}
      </ol>
      <form onSubmit={submit}>
        <input
          aria-label="Message"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            touch();
          }}
        />
        <button type="submit">Send</button>
      </form>
    </section>
  );
}

/**
 * Report when typing starts and stops, not each key, because updates of presence count as
 * publishes.
 *
 * @returns A function to call for each key, and one that stops at once.
 */
function useTyping(onStatus: (status: 'typing' | 'here') => void): [() => void, () => void] {
  const pause = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(pause.current), []);
  const rest = (): void => {
    clearTimeout(pause.current);
    if (pause.current !== undefined) onStatus('here');
    pause.current = undefined;
  };
  const touch = (): void => {
    clearTimeout(pause.current);
    if (pause.current === undefined) onStatus('typing');
    pause.current = setTimeout(rest, PAUSE);
  };
  return [touch, rest];
}
