/** A chat in React: the test controls what is mounted, and counts the frames. */

import { AuthRefused, type PubSubOptions } from '@hanzoai/pubsub';
import { createHooks } from '@hanzoai/pubsub/react';
import { StrictMode, useEffect, useState } from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';

const { PubSubProvider, useTopic, useHistory, usePresence, useConnection } = createHooks<{
  [room: `demo.${string}`]: { readonly text: string };
}>();

/** Functions and values for the test. */
export interface Seen {
  readonly sockets: WebSocket[];
  readonly sent: { readonly type: string; readonly topics?: readonly string[] }[];
  readonly problems: string[];
  renderings: number;
  /** Show a room before it returns; another `build` mounts everything again. */
  show(room: string | null, build: number): void;
  /** Unmount everything. */
  hide(): void;
}

const seen: Seen = {
  sockets: [],
  sent: [],
  problems: [],
  renderings: 0,
  show: (room, build) => flushSync(() => root.render(<App key={build} room={room} />)),
  hide: () => root.render(null),
};
Object.assign(globalThis, { seen });

class CountedSocket extends WebSocket {
  constructor(url: string) {
    super(url);
    seen.sockets.push(this);
  }
  override send(data: string): void {
    seen.sent.push(JSON.parse(data));
    super.send(data);
  }
}

/** How often the backend rejects a request for a token. */
let refusals = given.refusals ?? 0;

const options: PubSubOptions = {
  ...given.options,
  token: undefined,
  getToken: () => {
    refusals -= 1;
    if (refusals >= 0) throw new AuthRefused('Log in again.');
    return given.options.token ?? '';
  },
  WebSocket: CountedSocket as unknown as NonNullable<PubSubOptions['WebSocket']>,
};

function App({ room }: { readonly room: string | null }) {
  return (
    <StrictMode>
      <PubSubProvider options={options}>
        <State />
        <Room room={room as `demo.${string}`} />
        <People room={room} />
        {room === 'demo.older' && <Older room={room} />}
        {room === 'demo.mounted' && <Older room={room} atOnce />}
      </PubSubProvider>
    </StrictMode>
  );
}

function State() {
  const { state, failure, retry } = useConnection();
  return (
    <header>
      <p id="state">{state}</p>
      <p id="failure">{failure?.reason}</p>
      <button type="button" id="retry" onClick={retry} />
    </header>
  );
}

function Room({ room }: { readonly room: `demo.${string}` }) {
  const { messages, last, status, error, publish } = useTopic(room, { limit: 50 });
  const [draft, setDraft] = useState('');
  seen.renderings += 1;
  return (
    <section>
      <h1 id="status">{status}</h1>
      <p id="error">{error?.message}</p>
      <ol>
        {messages.map(({ id, data }) => (
          <li key={id}>{data.text}</li>
        ))}
      </ol>
      <p id="last">{last?.data.text}</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          publish({ data: { text: draft } }).catch((error) => seen.problems.push(String(error)));
        }}
      >
        <input value={draft} onChange={(event) => setDraft(event.target.value)} />
      </form>
    </section>
  );
}

/** Load older messages on a click; with `atOnce` also in the effect of the mount. */
function Older(given: { readonly room: `demo.${string}`; readonly atOnce?: boolean }) {
  const { room, atOnce = false } = given;
  const { messages: live } = useTopic(room);
  const { messages, loadOlder, hasOlder } = useHistory(room, live, { page: 3 });
  useEffect(() => {
    if (atOnce) loadOlder();
  }, [atOnce, loadOlder]);
  return (
    <button type="button" id="older" onClick={loadOlder}>
      {messages.map(({ data }) => data.text).join(' ')}
      {hasOlder && ' …'}
    </button>
  );
}

function People({ room }: { readonly room: string | null }) {
  const { members, update } = usePresence(room);
  return (
    <button type="button" id="people" onClick={() => void update({ status: 'typing' })}>
      {[...members.values()].map(({ name, status }) => `${name} ${status ?? 'here'}`).join(', ')}
    </button>
  );
}

const root = createRoot(document.body.appendChild(document.createElement('main')));
