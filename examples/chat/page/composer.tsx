/** The input for a message. */

import { type FormEvent, type KeyboardEvent, useState } from 'react';

import { useTyping } from './typing.js';

interface ComposerProps {
  readonly onSend: (text: string) => Promise<unknown>;
  readonly onTyping: (isTyping: boolean) => void;
  /** Other users who are typing. */
  readonly typing: readonly string[];
}

/** Maximum characters of a message. */
const LONGEST = 500;

export function Composer({ onSend, onTyping, typing }: ComposerProps) {
  const [text, setText] = useState('');
  const [isSending, setIsSending] = useState(false);
  const [problem, setProblem] = useState('');
  const [touch, rest] = useTyping(onTyping);

  async function send(event: FormEvent) {
    event.preventDefault();
    const message = text.trim();
    if (isSending || !message) return;
    setIsSending(true);
    setProblem('');
    try {
      await onSend(message);
      // Keep what the user has typed since.
      setText((now) => (now === text ? '' : now));
    } catch (error) {
      setProblem(`Not sent: ${error instanceof Error ? error.message : error}`);
    }
    setIsSending(false);
    rest();
  }

  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>): void => {
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    event.currentTarget.form?.requestSubmit();
  };

  return (
    <form className="composer" onSubmit={send}>
      <p className="typing" role="status">
        {typing.length > 0 && `${typing.join(', ')} ${typing.length > 1 ? 'are' : 'is'} typing …`}
      </p>
      <div className="line">
        <textarea
          rows={1}
          maxLength={LONGEST}
          aria-label="Message"
          placeholder="Ask about the text, or talk to the others"
          value={text}
          onKeyDown={onKeyDown}
          onChange={(event) => {
            setText(event.target.value);
            touch();
          }}
        />
        <button type="submit" className="primary" disabled={isSending}>
          Send
        </button>
      </div>
      <p className="hint">
        <span className="slip" role="alert">
          {problem}
        </span>
        <span>A message with a question mark gets an answer.</span>
      </p>
    </form>
  );
}
