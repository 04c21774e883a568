/** `useStream`: an answer as it grows, drawn by frames. */

import { useCallback, useEffect, useMemo, useRef, useState } from 'react';

import { UsageError } from '../errors.js';
import type { Part } from '../streams/parts.js';
import type { ReadStreamOptions, StreamEnd, StreamReader } from '../streams/reader.js';
import { usePubSub } from './provider.js';
import { page } from './stores.js';

/** How far a stream is. */
export type StreamStatus =
  | 'idle'
  | 'waiting'
  | 'streaming'
  | 'stalled'
  | 'done'
  | 'aborted'
  | 'failed';

/** What `useStream` takes; another `id` or `sender` begins anew. */
export type StreamOptions = Omit<ReadStreamOptions, 'signal'>;

interface StreamState {
  /** The text so far: a prefix of the answer, unless `stale`. */
  readonly text: string;
  /** The parts so far, with the text among them. */
  readonly parts: readonly Part[];
  /** Whether tokens are missing; the next snapshot ends that. */
  readonly stale: boolean;
  /**
   * `idle` without a topic, `waiting` before the first frame, `stalled` while nothing comes,
   * `failed` with an `error`.
   */
  readonly status: StreamStatus;
  /** How it ended. */
  readonly end: StreamEnd | undefined;
  /** Why there is nothing to read. */
  readonly error: Error | undefined;
}

/** What `useStream` gives. */
export interface StreamView extends StreamState {
  /** Ask the writer to end the stream; see `StreamReader.cancel`. */
  readonly cancel: (reason?: string) => Promise<void>;
  /** Send something to the program that writes; see `StreamReader.steer`. */
  readonly steer: (data: unknown) => Promise<void>;
}

const IDLE: StreamState = {
  text: '',
  parts: [],
  stale: false,
  status: 'idle',
  end: undefined,
  error: undefined,
};

/**
 * Follow a stream: its text grows with the frames of the page, and no delta is left out.
 *
 * A component that goes does not cancel it.
 *
 * @param topic A topic without wildcards; with null nothing is read.
 */
export function useStream(
  topic: string | null | undefined,
  { id, sender, onCancel }: StreamOptions = {},
): StreamView {
  const client = usePubSub();
  const [state, setState] = useState(IDLE);
  const reader = useRef<StreamReader | undefined>(undefined);
  const asked = useRef(onCancel);
  asked.current = onCancel;
  const isOwn = Boolean(onCancel);
  useEffect(() => {
    setState(topic ? { ...IDLE, status: 'waiting' } : IDLE);
    if (!topic) return undefined;
    const over = new AbortController();
    const { signal } = over;
    let status: StreamStatus = 'waiting';
    let error: Error | undefined;
    let end: StreamEnd | undefined;
    let isDue = false;
    const show = (): void => {
      if (isDue) return;
      isDue = true;
      page.frame(() => {
        const { current } = reader;
        if (!isDue || signal.aborted) return;
        isDue = false;
        const { text = '', parts = [], stale = false } = current ?? {};
        setState({ text, parts, stale, status, end, error });
      });
    };
    const follow = async (): Promise<void> => {
      const { readStream } = await import('../streams/reader.js');
      if (signal.aborted) return;
      const own = isOwn
        ? { onCancel: (stream: string, reason: string) => asked.current?.(stream, reason) }
        : {};
      const current = readStream(client, topic, { id, sender, signal, ...own });
      reader.current = current;
      for await (const event of current) {
        const { kind } = event;
        if (kind === 'done' || kind === 'aborted') end = event;
        status = kind === 'done' || kind === 'aborted' || kind === 'stalled' ? kind : 'streaming';
        show();
      }
    };
    follow().catch((problem: unknown) => {
      status = 'failed';
      error = problem as Error;
      show();
    });
    return () => {
      over.abort();
      reader.current = undefined;
    };
  }, [client, topic, id, sender, isOwn]);
  const cancel = useCallback(async (reason?: string) => known(reader.current).cancel(reason), []);
  const steer = useCallback(async (data: unknown) => known(reader.current).steer(data), []);
  return useMemo(() => ({ ...state, cancel, steer }), [state, cancel, steer]);
}

function known(reader: StreamReader | undefined): StreamReader {
  if (reader) return reader;
  throw new UsageError('There is no stream yet that could be cancelled or steered.', {
    remedy: 'Wait for the status `streaming`.',
  });
}
