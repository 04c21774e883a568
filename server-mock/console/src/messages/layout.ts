/** Positions of the rows of a long list. All have the same height, except the few that are open. */

/** Computes the positions of the rows. */
export class RowLayout {
  /** Height of all rows. */
  readonly total: number;

  /**
   * @param count Number of rows.
   * @param height Height of a closed row.
   * @param open Additional height of the open rows, by index.
   */
  constructor(
    readonly count: number,
    readonly height: number,
    private readonly _open: readonly (readonly [index: number, extra: number])[] = [],
  ) {
    this.total = count * height + _open.reduce((sum, [, extra]) => sum + extra, 0);
  }

  /** The top of a row. */
  top(index: number): number {
    let top = index * this.height;
    for (const [at, extra] of this._open) {
      if (at >= index) break;
      top += extra;
    }
    return top;
  }

  /** The row at this position; beyond the ends, the first or the last row. */
  indexAt(y: number): number {
    let before = 0;
    for (const [at, extra] of this._open) {
      const top = at * this.height + before;
      if (y < top + this.height) break;
      if (y < top + this.height + extra) return at;
      before += extra;
    }
    const index = Math.floor((y - before) / this.height);
    return Math.max(0, Math.min(this.count - 1, index));
  }
}
