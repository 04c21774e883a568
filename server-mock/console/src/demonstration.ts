/**
 * A demonstration of one minute: a chat, an agent with its answer, a lost connection and its
 * replay.
 */

import type { PubSub } from '@hanzoai/pubsub';

import type { Kind } from './credentials.js';
import { notify } from './notices.js';
import { onEnd, Signal } from './reactive.js';

const STEP = 125;
const LASTS = 60_000;
/** Steps that cut the connection. */
const CUT_BEN = 80;
const CUT_PAGE = 160;
/** Messages that the page misses while its connection is cut. */
const MISSED = 5;
const BACK =
  'The connection of this page was cut. It is back, and the server has replayed what it missed.';
const LOBBY = 'demo.chat.lobby';
const ANSWERED = 'demo.run-7.answer';

const ANSWER =
  'A topic is a log with a limit. A reader knows the number of the last message, so after a ' +
  'broken connection the reader asks for what follows that number, and gets each message once and in ' +
  'order. Messages that the log no longer retains are reported as a gap.';
const CHAT = [
  ['ana', 'morning! is the stream up?'],
  ['ben', 'yes, since six. the new model answers on demo.run-7.answer'],
  ['ana', 'nice. latency?'],
  ['ben', 'first token after 180 ms'],
  ['ben', 'I cut my wifi on purpose, nothing was lost'],
  ['ana', 'the gap line in the console is great'],
] as const;
const WORK = ['planning', 'searching', 'reading', 'reading', 'writing', 'checking', 'done'];

/** Clients of the demonstration. */
interface Cast {
  readonly writer: PubSub;
  readonly ana: PubSub;
  readonly ben: PubSub;
}

/** The functions of the page that the demonstration uses. */
export interface Stage {
  /** Create a client for a user at the addresses of the page. */
  client(user: string, kind: Kind): PubSub;
  /** Cut a connection. Returns whether it was cut. */
  cut(clientId: string): Promise<boolean>;
  /** The client of the page. */
  readonly ps: PubSub;
}

/**
 * Plays on `demo.`: a chat whose members join and type, an answer, a lost connection and its
 * replay.
 */
export class Demonstration {
  readonly running: Signal<boolean> = new Signal(false);
  /** The current step in words; empty while the demonstration is not running. */
  readonly caption: Signal<string> = new Signal('');
  private _timer: ReturnType<typeof setInterval> | undefined;
  private _cast: Cast | undefined;

  constructor(private readonly _stage: Stage) {
    onEnd(() => this.stop());
  }

  /** Start the demonstration; it ends by itself. */
  start(): void {
    if (this.running.peek()) return;
    this.running.value = true;
    this.caption.value = 'Ana and Ben join the chat. An agent works, and a model answers.';
    const client = this._stage.client.bind(this._stage);
    const cast = {
      writer: client('demo-writer', 'service'),
      ana: client('ana', 'user'),
      ben: client('ben', 'user'),
    };
    this._cast = cast;
    for (const [member, device] of [
      [cast.ana, 'laptop'],
      [cast.ben, 'phone'],
    ] as const) {
      const ready = member.subscribe(LOBBY, { onMessage: () => {} });
      this._try(ready.then(() => member.updatePresence(LOBBY, { status: 'online', device })));
    }
    const words = ANSWER.split(/(?<= )/);
    let step = 0;
    this._timer = setInterval(() => {
      if (step * STEP >= LASTS) {
        this.stop();
        return;
      }
      this._play(cast, step, words);
      step += 1;
    }, STEP);
  }

  /** Stop it. */
  stop(): void {
    clearInterval(this._timer);
    this.running.value = false;
    this.caption.value = '';
    for (const client of Object.values(this._cast ?? {})) void client.close({ timeout: 1_000 });
    this._cast = undefined;
  }

  private _play(cast: Cast, step: number, words: readonly string[]): void {
    const n = step % (words.length + 20);
    const word = words[n];
    const { writer } = cast;
    if (word !== undefined) this._send(writer, ANSWERED, 'token', { index: n, content: word });
    else if (n === words.length) {
      const data = { count: words.length, text: ANSWER, finish_reason: 'stop' };
      this._send(writer, ANSWERED, 'message.complete', data);
    }
    const line = CHAT[Math.floor(step / 16) % CHAT.length];
    const speaker = line && cast[line[0]];
    if (speaker && step % 16 === 8) this._show(speaker, 'typing');
    if (speaker && step % 16 === 12) {
      this._send(speaker, LOBBY, 'chat', { from: line[0], text: line[1] });
      this._show(speaker, 'online');
    }
    if (step % 12 === 8) {
      const at = Math.floor(step / 12) % WORK.length;
      this._send(writer, 'demo.agent.researcher.events', 'agent.status', {
        status: WORK[at],
        progress: Math.round((at / (WORK.length - 1)) * 100) / 100,
        sources: [`doi:10.1000/${182 + at}`, 'https://example.com/paper'].slice(0, 1 + (at % 2)),
      });
    }
    if (step % 24 === 20) {
      this._send(writer, 'demo.spark.job-42.progress', 'progress', {
        stage: 3,
        done: (step / 24) | 0,
        of: 20,
        rows_per_second: 81_400 + ((step * 7_919) % 9_000),
      });
    }
    if (step === CUT_BEN) void this._cutBen(cast);
    if (step === CUT_PAGE) void this._cutPage(cast);
  }

  private async _cutBen({ ben }: Cast): Promise<void> {
    this.caption.value = 'The connection of Ben is cut. He returns, and Ana sees no change.';
    await this._stage.cut(ben.clientId ?? '');
  }

  private async _cutPage({ writer }: Cast): Promise<void> {
    this.caption.value =
      'The connection of this page is cut. It reconnects, and the server replays what it missed.';
    const { ps } = this._stage;
    const stop = ps.on('state', ({ from, to }) => {
      if (from === 'connected') {
        // Publish while the connection is lost: when the page is back, it would receive them live.
        for (let n = 1; n <= MISSED; n += 1) {
          this._send(writer, LOBBY, 'chat', { from: 'ana', text: `sent during the cut, ${n}` });
        }
      } else if (to === 'connected') {
        stop();
        if (this.running.peek()) this.caption.value = BACK;
      }
    });
    if (await this._stage.cut(ps.clientId ?? '')) return;
    stop();
    this.caption.value = 'Sign in as an administrator to see a cut and its replay.';
  }

  private _show(member: PubSub, status: string): void {
    this._try(member.updatePresence(LOBBY, { status }));
  }

  private _send(from: PubSub, topic: string, type: string, data: unknown): void {
    this._try(from.publish(topic, { type, data }));
  }

  private _try(done: Promise<unknown>): void {
    done.catch((error: unknown) => {
      // Ignore the errors of calls that stopping has interrupted.
      if (!this.running.peek()) return;
      this.stop();
      notify(error);
    });
  }
}
