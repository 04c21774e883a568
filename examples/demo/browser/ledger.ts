/** The words that this page shows: which are new, missing or different. Without I/O. */

const WORD = /\S+\s*/g;

export class Ledger {
  /** Number of words shown. */
  received = 0;
  /** How often the text did not continue the text shown before. */
  altered = 0;
  /** Number of gaps: tokens that were missing until the next snapshot. */
  gaps = 0;
  /** The number of words written, once it is known. */
  total: number | undefined;
  private _text = '';
  private readonly _latencies: number[] = [];

  /** Append to the text; returns the new words. */
  grow(text: string): string[] {
    return this.replace(this._text + text);
  }

  /** Replace the text; returns the new words. */
  replace(text: string): string[] {
    if (!text.startsWith(this._text)) this.altered += 1;
    this._text = text;
    const words = text.match(WORD) ?? [];
    const fresh = words.slice(this.received);
    this.received = words.length;
    return fresh;
  }

  /** Record the latency of a message: milliseconds since the server's timestamp. */
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

  /** Percentile of the latencies in milliseconds; undefined if there are none. */
  percentile(share: number): number | undefined {
    const sorted = this._latencies.toSorted((a, b) => a - b);
    return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  }
}
