/** What this page shows of the text: which words are new, what is missing, what differs. Pure. */

const WORD = /\S+\s*/g;

export class Ledger {
  /** Words that are shown. */
  received = 0;
  /** Times at which the text did not continue what was shown before. */
  altered = 0;
  /** Times at which tokens were missing until the next snapshot. */
  gaps = 0;
  /** The number of words that were written, once that is known for certain. */
  total: number | undefined;
  private _text = '';
  private readonly _latencies: number[] = [];

  /** The answer has grown; gives the words that are new. */
  grow(text: string): string[] {
    return this.replace(this._text + text);
  }

  /** The answer is this text now; gives the words that are new. */
  replace(text: string): string[] {
    if (!text.startsWith(this._text)) this.altered += 1;
    this._text = text;
    const words = text.match(WORD) ?? [];
    const fresh = words.slice(this.received);
    this.received = words.length;
    return fresh;
  }

  /** A message came so many milliseconds after the server's stamp. */
  late(latency: number): void {
    this._latencies.push(latency);
  }

  get lost(): number {
    return Math.max(0, (this.total ?? this.received) - this.received);
  }

  get twice(): number {
    return Math.max(0, this.received - (this.total ?? this.received));
  }

  get whole(): boolean {
    return !(this.lost || this.twice || this.altered);
  }

  /** Milliseconds from the server's stamp to this page; 0 of nothing. */
  percentile(share: number): number {
    const sorted = this._latencies.toSorted((a, b) => a - b);
    return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
  }
}
