/**
 * One stream in virtual time, from a seed: writers that fail, readers that lose their connection,
 * and a log that drops messages.
 *
 * The same as tests/simulation/streams.py, which compares the logs of both and checks the views.
 * `node streams.js SEED` prints the log of a run; `node streams.js FIRST END` prints one digest per
 * seed.
 */

import { createHash } from 'node:crypto';

import type { Part, Piece } from '../../../js/src/streams/parts.js';
import { grow } from '../../../js/src/streams/pieces.js';
import { type Incoming, type ReaderEffect, Reading } from '../../../js/src/streams/reading.js';
import { type PublishFrame, type WriterEffect, Writing } from '../../../js/src/streams/writing.js';
import { Random } from './prng.js';

const FAMILY = '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}';
const WORDS = ['a', 'Hello ', 'wörld', '漢字', FAMILY, 'é', '\n', '"\\', ''];
const LONGEST = 600_000;
/** Milliseconds after which history is always available, so that every run ends. */
const FAULTY = 60_000;

/** The same text in every language. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) =>
    one && typeof one === 'object' && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}

class Reader {
  readonly reading: Reading;
  joined = false;
  cut = false;
  missed: number[] = [];
  last = 0;
  due: number | undefined;

  constructor(
    readonly name: string,
    want: string,
  ) {
    this.reading = new Reading(want);
  }
}

/** One run. */
class StreamRun {
  readonly lines: string[] = [];
  private readonly random: Random;
  private now = 0;
  private queue: { at: number; n: number; call: () => void }[] = [];
  private number = 0;
  private readonly keeps: number;
  private readonly idempotent: boolean;
  private readonly plain: boolean;
  private log: (readonly [number, Incoming])[] = [];
  private readonly ids = new Map<string, string>();
  private published = 0;
  private readonly pieces: Piece[];
  private readonly prefixes: string[];
  private epoch = 0;
  private over = false;
  private takeovers = 0;
  private readonly readers: Reader[];

  constructor(seed: number) {
    const random = new Random(seed);
    this.random = random;
    this.keeps = random.pick([20, 40, 100]);
    this.idempotent = random.chance(700);
    this.plain = random.chance(300);
    this.pieces = this.source();
    this.prefixes = Array.from({ length: this.pieces.length + 1 }, (_, n) =>
      canonical(this.whole(n)),
    );
    this.readers = Array.from(
      { length: random.between(1, 4) },
      (_, n) => new Reader(`r${n}`, random.pick(['s', 'latest'])),
    );
    for (const reader of this.readers) {
      this.later(random.below(4_000), () => this.join(reader));
      for (let left = random.below(3); left; left -= 1) {
        this.later(random.below(9_000), () => this.sever(reader));
      }
    }
    this.startWriter(undefined, [], 0);
  }

  run(): void {
    while (this.queue.length) {
      const next = this.queue.reduce((a, b) =>
        b.at < a.at || (b.at === a.at && b.n < a.n) ? b : a,
      );
      this.queue.splice(this.queue.indexOf(next), 1);
      this.now = next.at;
      if (next.at > LONGEST) break;
      next.call();
      if (this.over && this.readers.every(({ reading }) => reading.ended)) break;
    }
  }

  private later(after: number, call: () => void): void {
    this.number += 1;
    this.queue.push({ at: this.now + after, n: this.number, call });
  }

  private say(...words: unknown[]): void {
    this.lines.push(`${this.now} ${words.join(' ')}`);
  }

  private source(): Piece[] {
    const pieces: Piece[] = [];
    const length = this.random.between(5, 120);
    for (let n = 0; n < length; n += 1) {
      const chance = this.random.below(1000);
      if (chance < 30) {
        pieces.push(
          { type: 'tool-call', id: `c${n}`, text: '' },
          { text: '{"a":' },
          { text: '1}' },
        );
      } else if (chance < 40) pieces.push({ type: 'citation', url: `u${n}` });
      else if (chance < 70) pieces.push('x\ud83d', '\ude00');
      else pieces.push(this.random.pick(WORDS));
    }
    return pieces;
  }

  /** The text of the first pieces, without half of a surrogate pair at the end. */
  private whole(n: number): Part[] {
    const parts: Part[] = [];
    for (const piece of this.pieces.slice(0, n)) {
      const shown = piece === 'x\ud83d' ? 'x' : piece === '\ude00' ? '\u{1f600}' : piece;
      if (shown !== '') grow(parts, shown);
    }
    return parts;
  }

  private publish({ id, type, data }: PublishFrame): string | undefined {
    const output = canonical(data);
    const before = this.ids.get(id);
    if (this.idempotent && before !== undefined) return before === output ? undefined : 'conflict';
    this.ids.set(id, output);
    this.published += 1;
    const message: Incoming = { type, data: JSON.parse(output), sender: 'svc' };
    this.log = [...this.log, [this.published, message] as const].slice(-this.keeps);
    for (const reader of this.readers) {
      if (!reader.joined) continue;
      if (reader.cut) reader.missed.push(this.published);
      else if (!(this.plain && this.random.chance(40))) {
        let delay = this.random.between(1, 30);
        if (!this.plain) {
          reader.last = Math.max(reader.last, this.now + delay);
          delay = reader.last - this.now;
        }
        this.later(delay, () => {
          if (!reader.cut) this.read(reader, 'take', reader.reading.take(message, this.now));
        });
      }
    }
    return undefined;
  }

  private history(): Incoming[] {
    return this.log.map(([, message]) => message);
  }

  private startWriter(base: number | undefined, parts: Part[], first: number): void {
    const { random } = this;
    const writing = new Writing('s', this.epoch, `w${this.epoch}`, { base, parts });
    this.epoch += 1;
    let alive = true;
    let due: number | undefined;

    const step = (name: string, effects: WriterEffect[]): void => {
      this.say(`w${writing.epoch}`, name, canonical(effects), writing.due ?? 'None');
      for (const effect of effects) {
        if (effect.kind === 'publish') send(effect);
        else if (effect.kind !== 'slowed') throw new Error(`unexpected ${effect.kind}`);
      }
      this.over ||= writing.ended;
      if (writing.due !== undefined && writing.due !== due) {
        due = writing.due;
        this.later(Math.max(0, due - this.now), tick);
      }
    };
    const tick = (): void => {
      due = undefined;
      if (!alive || writing.due === undefined) return;
      if (this.now >= writing.due) step('tick', writing.tick(this.now));
      else {
        due = writing.due;
        this.later(due - this.now, tick);
      }
    };
    const send = (frame: PublishFrame): void => {
      const trip = random.chance(30) ? random.between(200, 1500) : random.between(1, 30);
      const fate = random.below(1000);
      this.later(trip, () => {
        let code = fate < 30 ? 'rate_limited' : this.publish(frame);
        if (code === undefined && 30 <= fate && fate < 60) code = 'timeout';
        this.later(trip, () => answer(code));
      });
    };
    const answer = (code: string | undefined): void => {
      if (!alive) return;
      if (code === undefined) step('sent', writing.sent(this.now));
      else step(`failed ${code}`, writing.failed(code, code !== 'conflict', this.now));
    };
    const write = (n: number): void => {
      if (!alive) return;
      const next = this.pieces[n];
      if (next === undefined) {
        step('finish', writing.finish('complete', { finish_reason: 'stop' }, this.now));
        return;
      }
      const piece = n === first && next === '\ude00' ? '\u{1f600}' : next;
      step('write', writing.write(piece, this.now));
      const pause = random.chance(20) ? random.between(1000, 4000) : random.below(60);
      this.later(pause, () => write(n + 1));
    };
    if (this.takeovers < 3 && random.chance(350)) {
      this.takeovers += 1;
      this.later(random.below(5_000), () => {
        if (this.over || !alive) return;
        alive = false;
        this.say(`w${writing.epoch}`, 'dies');
        this.later(random.between(500, 12_000), () => this.takeOver());
      });
    }
    step('open', writing.open(this.now));
    this.later(0, () => write(first));
  }

  private takeOver(): void {
    const reading = new Reading('s');
    reading.begin(this.history(), this.now);
    if (reading.ended) {
      this.over = true;
      return;
    }
    this.epoch = Math.max(this.epoch, reading.epoch + 1);
    if (reading.epoch >= 0 && !reading.stale && reading.based) {
      const at = this.prefixes.indexOf(canonical(reading.parts));
      this.startWriter(reading.next, reading.parts, at);
    } else this.startWriter(undefined, [], 0);
  }

  private join(reader: Reader): void {
    reader.joined = true;
    this.read(reader, 'begin', reader.reading.begin(this.history(), this.now));
  }

  private sever(reader: Reader): void {
    if (!reader.joined || reader.cut) return;
    reader.cut = true;
    this.later(this.random.between(50, 6_000), () => this.mend(reader));
  }

  private mend(reader: Reader): void {
    reader.cut = false;
    const { missed } = reader;
    reader.missed = [];
    const first = this.log[0]?.[0] ?? 0;
    this.read(reader, 'lost', reader.reading.lost());
    if (missed.length && Number(missed[0]) < first) this.say(reader.name, 'trimmed');
    for (const [number, message] of [...this.log]) {
      if (missed.includes(number))
        this.read(reader, 'take', reader.reading.take(message, this.now));
    }
  }

  private heal(reader: Reader): void {
    const away = this.random.chance(300) && this.now < FAULTY;
    const history = away ? [] : this.history();
    this.read(reader, 'healed', reader.reading.healed(history, this.now));
  }

  private tick(reader: Reader): void {
    reader.due = undefined;
    const { due } = reader.reading;
    if (due !== undefined && this.now >= due)
      this.read(reader, 'tick', reader.reading.tick(this.now));
    else this.wind(reader);
  }

  private wind(reader: Reader): void {
    const { due } = reader.reading;
    if (due === undefined || reader.due !== undefined) return;
    reader.due = due;
    this.later(Math.max(0, due - this.now), () => this.tick(reader));
  }

  private read(reader: Reader, name: string, effects: ReaderEffect[]): void {
    const { reading } = reader;
    this.say(reader.name, name, canonical(effects), reading.next, reading.stale ? 'stale' : '');
    for (const { kind } of effects) {
      if (kind === 'heal') this.later(this.random.between(5, 60), () => this.heal(reader));
    }
    this.wind(reader);
  }
}

const [first = 0, end] = process.argv.slice(2).map(Number);
for (let seed = first; seed < (end ?? first + 1); seed += 1) {
  const run = new StreamRun(seed);
  try {
    run.run();
  } catch (error) {
    run.lines.push(String(error));
  }
  const text = `${run.lines.join('\n')}\n`;
  const output = createHash('sha256').update(text).digest('hex');
  process.stdout.write(end === undefined ? text : `${seed} ${output}\n`);
}
