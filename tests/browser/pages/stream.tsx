/** A token stream and reduced messages in React; the test publishes them. */

import { PubSubProvider, type StreamView, useStream, useTopic } from '@hanzoai/pubsub/react';
import { StrictMode, useState } from 'react';
import { createRoot } from 'react-dom/client';

/** Functions and values for the test. */
export interface Shown {
  received: number[];
  texts: string[];
  stream: StreamView | undefined;
  renderings: number;
  /** What was rendered for each topic of a room: the text of its answer, and its sum. */
  rooms: [topic: string | null, text: string, sum: number][];
  /** Mount or unmount the answer. */
  show(visible: boolean): void;
  /** Change the topic of the room. */
  enter(topic: string | null): void;
}

const shown: Shown = {
  received: [],
  texts: [],
  stream: undefined,
  renderings: 0,
  rooms: [],
  show: () => {},
  enter: () => {},
};
Object.assign(globalThis, { shown });

function Answer() {
  const stream = useStream('demo.answer');
  shown.stream = stream;
  shown.renderings += 1;
  if (shown.texts.at(-1) !== stream.text) shown.texts.push(stream.text);
  return <p id="answer">{`${stream.status} ${stream.text}`}</p>;
}

function Numbers() {
  const { value, status } = useTopic('demo.numbers', {
    limit: 10,
    onMessage: ({ data }) => shown.received.push(Number(data)),
    reduce: (sum: number, { data }) => sum + Number(data),
    initial: 0,
  });
  return <p id="sum">{`${status} ${value}`}</p>;
}

function Room() {
  const [topic, enter] = useState<string | null>(null);
  shown.enter = enter;
  const { text } = useStream(topic);
  const { value } = useTopic(topic, { reduce: (sum: number) => sum + 1, initial: 0 });
  shown.rooms.push([topic, text, value]);
  return <p id="room">{`${topic} ${value > 0} ${text}`}</p>;
}

function App() {
  const [isVisible, show] = useState(true);
  shown.show = show;
  return (
    <StrictMode>
      <PubSubProvider options={given.options}>
        <Numbers />
        <Room />
        {isVisible && <Answer />}
      </PubSubProvider>
    </StrictMode>
  );
}

createRoot(document.body.appendChild(document.createElement('div'))).render(<App />);
