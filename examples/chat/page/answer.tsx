/** An answer while it grows: text, a tool call that fills in, sources, and requests of readers. */

import type { StreamView } from '@hanzoai/pubsub/react';
import { useStream } from '@hanzoai/pubsub/react';
import { type Part, partialJson } from '@hanzoai/pubsub/streams';
import { useState } from 'react';

import { Avatar } from './users.js';

interface AnswerProps {
  /** Id of the question, which is also the id of the stream. */
  readonly id: string;
  readonly scribe: string;
  /** Whether a writer process is running. */
  readonly hasWriter: boolean;
}

export function Answer({ id, scribe, hasWriter }: AnswerProps) {
  const stream = useStream(`demo.answers.${id}`, { id, sender: scribe });
  const { parts, status, stale } = stream;
  const isRunning = status === 'waiting' || status === 'streaming' || status === 'stalled';
  return (
    <article
      className="answer"
      data-status={status}
      data-stream={id}
      aria-label="Answer"
      aria-busy={isRunning}
    >
      <header>
        <Avatar user={scribe} />
        <b>{scribe}</b>
        <Status stream={stream} hasWriter={hasWriter} isRunning={isRunning} />
      </header>
      <div className={stale ? 'parts stale' : 'parts'}>
        {parts.map((part, at) => (
          <Shown key={at} part={part} isLast={isRunning && at === parts.length - 1} />
        ))}
      </div>
      {isRunning && status !== 'waiting' && <Controls stream={stream} />}
    </article>
  );
}

/**
 * The state of the answer in one line, which a screen reader announces. It does not announce each
 * word of the text.
 */
function Status({
  stream: { status, end, error },
  hasWriter,
  isRunning,
}: {
  readonly stream: StreamView;
  readonly hasWriter: boolean;
  readonly isRunning: boolean;
}) {
  let [look, text] = ['wait', 'writing …'];
  if (isRunning && !hasWriter) [look, text] = ['bad', 'waiting for another writer'];
  else if (status === 'waiting') text = 'about to answer …';
  else if (status === 'stalled') text = 'no words for a while …';
  else if (status === 'failed') [look, text] = ['bad', error?.message ?? 'failed'];
  else if (end?.kind === 'done') [look, text] = ['good', 'complete'];
  else if (end?.kind === 'aborted') [look, text] = ['bad', endedBy(end.by, end.reason)];
  return (
    <span className={`tag ${look}`} role="status">
      {text}
    </span>
  );
}

const endedBy = (by: string | undefined, reason: string): string =>
  by ? `stopped by ${by}` : `ended: ${reason}`;

function Controls({ stream }: { readonly stream: StreamView }) {
  const [problem, setProblem] = useState('');
  const run = (action: () => Promise<void>) => async () => {
    setProblem('');
    try {
      await action();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <footer className="actions">
      <button type="button" className="ghost small stop" onClick={run(() => stream.cancel('user'))}>
        <i aria-hidden="true" />
        Stop
      </button>
      <button type="button" className="ghost small" onClick={run(() => stream.steer('shorter'))}>
        Shorter
      </button>
      <button type="button" className="ghost small" onClick={run(() => stream.steer('more'))}>
        One more passage
      </button>
      <span className="slip" role="alert">
        {problem}
      </span>
    </footer>
  );
}

function Shown({ part, isLast }: { readonly part: Part; readonly isLast: boolean }) {
  switch (part.type) {
    case 'text':
      return (
        <p className="words">
          {part.text}
          {isLast && <span className="caret" aria-hidden="true" />}
        </p>
      );
    case 'tool-call':
      return <ToolCall part={part} isOpen={isLast} />;
    case 'tool-result':
      return <ToolResult output={part['output']} />;
    case 'citation':
      return <p className="source">{String(part['title'])}</p>;
    case 'steer':
      return (
        <p className="steer">
          {String(part['by'])} asked for {part.text === 'more' ? 'one more passage' : part.text}
        </p>
      );
    default:
      return null;
  }
}

/** The arguments of a tool call that have been written so far. */
function ToolCall({ part, isOpen }: { readonly part: Part; readonly isOpen: boolean }) {
  const given = Object(partialJson(part.text ?? '')) as Record<string, unknown>;
  return (
    <div className="tool">
      <header>
        <code>{String(part['name'])}</code>
        <span className="quiet">{isOpen ? 'filling in …' : 'called'}</span>
      </header>
      <dl>
        {Object.entries(given).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              {Array.isArray(value) ? value.map((word) => <i key={word}>{word}</i>) : String(value)}
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function ToolResult({ output }: { readonly output: unknown }) {
  const found = Array.isArray(output) ? (output as { passage: number; words: number }[]) : [];
  return (
    <p className="found">
      {found.map(({ passage, words }) => (
        <span key={passage}>
          passage {passage} · {words} words
        </span>
      ))}
    </p>
  );
}
