/** What this page has got of a numbered stream: what is missing, what came twice. Pure. */

export class Ledger {
  received = 0;
  twice = 0;
  jumbled = 0;
  gaps = 0;
  /** The number of words that were published, once that is known for certain. */
  total: number | undefined;
  private readonly _indices = new Set<number>();
  private readonly _latencies: number[] = [];
  private _highest = -1;

  /** A word came; says whether it is new. */
  note(index: number, latency: number | undefined): boolean {
    if (this._indices.has(index)) {
      this.twice += 1;
      return false;
    }
    this._indices.add(index);
    this.received += 1;
    if (index < this._highest) this.jumbled += 1;
    this._highest = Math.max(this._highest, index);
    if (latency !== undefined) this._latencies.push(latency);
    return true;
  }

  /** Words that others must have had before the newest one here, or that the stream had in all. */
  get lost(): number {
    return (this.total ?? this._highest + 1) - this.received;
  }

  get whole(): boolean {
    return !(this.lost || this.twice || this.jumbled || this.gaps);
  }

  /** Milliseconds from the server's stamp to this page; 0 of nothing. */
  percentile(share: number): number {
    const sorted = this._latencies.toSorted((a, b) => a - b);
    return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
  }
}
