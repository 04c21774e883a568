/** The events of an agent, each verified as the agent's own or marked as forged. */

import type { PubSubOptions } from '@hanzoai/pubsub';
import { PubSubProvider, usePubSub } from '@hanzoai/pubsub/react';
import { type SignedEvent, SignedTopic } from '@hanzoai/pubsub/signed';
import { useEffect, useState } from 'react';

/** Maximum events on the page. */
const SHOWN = 100;

interface AgentProps {
  /** Address of the agent's key, 20 bytes, from a source that the page trusts. */
  readonly owner: Uint8Array;
  /** Id of the topic, for example `agent.events`. */
  readonly id: string;
}

export function App({ options, ...agent }: AgentProps & { readonly options: PubSubOptions }) {
  return (
    <PubSubProvider options={options}>
      <h1>Events of the agent</h1>
      <Events {...agent} />
    </PubSubProvider>
  );
}

function Events(agent: AgentProps) {
  const { events, problem } = useSigned(agent);
  if (problem) return <p role="alert">{problem}</p>;
  if (!events) return <p role="status">connecting …</p>;
  return (
    <ol>
      {events.map((event, at) => (
        <Event key={at} event={event} />
      ))}
    </ol>
  );
}

function Event({ event }: { readonly event: SignedEvent }) {
  switch (event.kind) {
    case 'message':
      return (
        <li data-kind="proved">
          <strong>✓ signed by the agent</strong> <code>{JSON.stringify(event.data)}</code>
        </li>
      );
    case 'forged':
      return (
        <li data-kind="forged">
          <strong>⚠ forged</strong> <del>{JSON.stringify(claimed(event.data))}</del>
          <br />
          {event.error.message}
        </li>
      );
    default:
      return <li data-kind="gap">Some events are missing.</li>;
  }
}

/** The payload of an unverified message; its other fields are hex. */
function claimed(data: unknown): unknown {
  return Object(data).payload ?? data;
}

/** The messages of a signed topic, verified in this page; undefined until the topic is open. */
function useSigned({ owner, id }: AgentProps) {
  const client = usePubSub();
  const [events, setEvents] = useState<readonly SignedEvent[]>();
  const [problem, setProblem] = useState('');
  useEffect(() => {
    const topic = new SignedTopic({ client, id, owner });
    let left = false;
    async function follow() {
      await topic.connect();
      setEvents([]);
      for await (const event of topic.events()) {
        if (left) return;
        setEvents((known = []) => [...known.slice(1 - SHOWN), event]);
      }
    }
    follow().catch((error: unknown) => {
      if (!left) setProblem(error instanceof Error ? error.message : String(error));
    });
    return () => {
      left = true;
      topic.close().catch(() => {});
    };
  }, [client, id, owner]);
  return { events, problem };
}
