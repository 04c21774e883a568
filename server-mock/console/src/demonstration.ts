/** A minute of traffic to look at: people who chat, an agent at work, an answer by tokens. */

import type { PubSub } from '@hanzoai/pubsub';

import { tell } from './notices.js';
import { onEnd, Signal } from './reactive.js';

const STEP = 125;
const LASTS = 60_000;

const ANSWER =
  'A topic is a log with a limit. A reader knows the number of the last message, so after a ' +
  'broken connection the reader asks for what follows that number, and gets each message once and in ' +
  'order. What the log has forgotten by then is reported as a gap.';
const CHAT = [
  ['ana', 'morning! is the stream up?'],
  ['ben', 'yes, since six. the new model answers on demo.run-7.answer'],
  ['ana', 'nice. latency?'],
  ['ben', 'first token after 180 ms'],
  ['chen', 'I cut my wifi on purpose, nothing was lost'],
  ['ana', 'the gap line in the console is great'],
] as const;
const WORK = ['planning', 'searching', 'reading', 'reading', 'writing', 'checking', 'done'];

/** Publishes under `demo.`, as the identity that is signed in. */
export class Demonstration {
  readonly running: Signal<boolean> = new Signal(false);
  private _timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly _ps: PubSub) {
    onEnd(() => this.stop());
  }

  /** Begin; it ends by itself. */
  start(): void {
    if (this.running.peek()) return;
    this.running.value = true;
    const words = ANSWER.split(/(?<= )/);
    let step = 0;
    this._timer = setInterval(() => {
      if (step * STEP >= LASTS) {
        this.stop();
        return;
      }
      this._play(step, words);
      step += 1;
    }, STEP);
  }

  /** End it now. */
  stop(): void {
    clearInterval(this._timer);
    this.running.value = false;
  }

  private _play(step: number, words: readonly string[]): void {
    const n = step % (words.length + 20);
    const word = words[n];
    if (word !== undefined) this._send('demo.run-7.answer', 'token', { index: n, delta: word });
    else if (n === words.length) {
      this._send('demo.run-7.answer', 'done', { tokens: words.length, finish_reason: 'stop' });
    }
    const line = CHAT[Math.floor(step / 16) % CHAT.length];
    if (step % 16 === 4 && line)
      this._send('demo.chat.lobby', 'chat', { from: line[0], text: line[1] });
    if (step % 12 === 8) {
      const at = Math.floor(step / 12) % WORK.length;
      this._send('demo.agent.researcher.events', 'agent.status', {
        status: WORK[at],
        progress: Math.round((at / (WORK.length - 1)) * 100) / 100,
        sources: [`doi:10.1000/${182 + at}`, 'https://example.com/paper'].slice(0, 1 + (at % 2)),
      });
    }
    if (step % 24 === 20) {
      this._send('demo.spark.job-42.progress', 'progress', {
        stage: 3,
        done: (step / 24) | 0,
        of: 20,
        rows_per_second: 81_400 + ((step * 7_919) % 9_000),
      });
    }
  }

  private _send(topic: string, type: string, data: unknown): void {
    this._ps.publish(topic, { type, data }).catch((error: unknown) => {
      this.stop();
      tell(error);
    });
  }
}
