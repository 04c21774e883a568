/** The room: messages, answers, and who is present. */

import type { Message } from '@hanzoai/pubsub';
import { useConnection, usePresence, useTopic } from '@hanzoai/pubsub/react';
import { useLayoutEffect, useRef, useState } from 'react';

import { Answer } from './answer.js';
import { Composer } from './composer.js';
import { Side } from './side.js';
import { Avatar } from './users.js';

/** Maximum messages shown; a server retains 100 by default. */
const SHOWN = 100;
/** Distance in pixels from the end of the page within which it scrolls to new content. */
const NEAR = 120;
const SUGGESTIONS = [
  'Why did the relay make the post fast?',
  'What could a fire on a hill say?',
  'Who needs an ordered list of messages?',
];

interface RoomProps {
  readonly topic: string;
  readonly scribe: string;
  readonly user: string;
}

export function Room({ topic, scribe, user }: RoomProps) {
  const { messages, status, error, publish, retry } = useTopic(topic, {
    history: SHOWN,
    limit: SHOWN,
  });
  const { users, update } = usePresence(topic);
  const end = useFollowing();
  const lastNote = messages.findLast(({ type }) => type.startsWith('writer.'));
  const hasWriter = lastNote?.type !== 'writer.died';
  const typing = users
    .filter(({ user_id, status }) => status === 'typing' && user_id !== user)
    .map(({ user_id }) => user_id);

  const send = (text: string) =>
    publish({ type: text.includes('?') ? 'question' : 'note', data: { text } });

  return (
    <>
      <header className="bar">
        <img className="mark" src="icon.svg" alt="" />
        <h1 className="brand">
          <b>Hanzo PubSub</b> <span className="brand-more">chat</span>
        </h1>
        <span className="push" />
        <span className="faces" aria-hidden="true">
          {users.slice(0, 6).map(({ user_id }) => (
            <Avatar key={user_id} user={user_id} />
          ))}
        </span>
        <Connection />
      </header>
      <div className="room">
        <main aria-busy={status !== 'live'}>
          {error ? (
            <p className="trouble" role="alert">
              {error.message}{' '}
              <button type="button" className="ghost small" onClick={retry}>
                Try again
              </button>
            </p>
          ) : (
            status === 'live' && messages.length === 0 && <Welcome onAsk={send} />
          )}
          <ol className="log" aria-label="Messages">
            {messages.map((message) => (
              <li key={message.id}>
                <Said message={message} user={user} />
                {message.type === 'question' && (
                  <Answer id={message.id} scribe={scribe} hasWriter={hasWriter} />
                )}
              </li>
            ))}
          </ol>
          <Composer
            onSend={send}
            typing={typing}
            onTyping={(isTyping) => {
              // If an update is lost, the next one replaces it.
              update({ status: isTyping ? 'typing' : 'here' }).catch(() => {});
            }}
          />
          <div ref={end} />
        </main>
        <Side users={users} user={user} scribe={scribe} />
      </div>
    </>
  );
}

function Connection() {
  const { state, failure, retry } = useConnection();
  return (
    <span className="pill" data-state={state}>
      <i className="lamp" aria-hidden="true" />
      <span role="status">{state}</span>
      {state === 'failed' && (
        <button type="button" className="ghost small" title={failure?.reason} onClick={retry}>
          Try again
        </button>
      )}
    </span>
  );
}

function Welcome({ onAsk }: { readonly onAsk: (text: string) => Promise<unknown> }) {
  const [problem, setProblem] = useState('');

  const ask = (text: string): void => {
    setProblem('');
    onAsk(text).catch((error: Error) => setProblem(`Not sent: ${error.message}`));
  };

  return (
    <section className="welcome" aria-labelledby="welcome">
      <h2 id="welcome">Ask the scribe</h2>
      <p>
        It answers from an essay on messages and their order. The words come over a topic, so every
        tab in this room sees the answer grow, can stop it, and can steer it.
      </p>
      <ul>
        {SUGGESTIONS.map((text) => (
          <li key={text}>
            <button type="button" className="ghost" onClick={() => ask(text)}>
              {text}
            </button>
          </li>
        ))}
      </ul>
      <p className="slip" role="alert">
        {problem}
      </p>
    </section>
  );
}

function Said({ message, user }: { readonly message: Message; readonly user: string }) {
  const { type, sender, data } = message;
  if (type === 'writer.died' || type === 'writer.started') {
    const what = type === 'writer.died' ? 'died' : 'takes over';
    return (
      <p className="note" data-note={type}>
        Writer process {String(data.pid)} {what}.
      </p>
    );
  }
  const by = sender?.id ?? 'a user';
  return (
    <div className={by === user ? 'said own' : 'said'}>
      <Avatar user={by} />
      <p>
        <b>{by}</b>
        <span>{String(data.text)}</span>
      </p>
    </div>
  );
}

/** Scroll to the end while the page grows, unless the user has scrolled up. */
function useFollowing() {
  const end = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const page = document.documentElement;
    let isNear = true;
    const look = (): void => {
      isNear = page.scrollHeight - page.scrollTop - innerHeight < NEAR;
    };
    const follow = new ResizeObserver(() => {
      if (isNear) page.scrollTop = page.scrollHeight;
    });
    addEventListener('scroll', look, { passive: true });
    const grows = end.current?.parentElement;
    if (grows) follow.observe(grows);
    return () => {
      removeEventListener('scroll', look);
      follow.disconnect();
    };
  }, []);
  return end;
}
