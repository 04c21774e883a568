/** Where the rows of a long list are: all of one height, but the few that are open. */

/** The places of the rows. */
export class RowLayout {
  /** Height of all rows. */
  readonly total: number;

  /**
   * @param count Of the rows.
   * @param height Of a closed row.
   * @param open Index and additional height of the open ones, by index.
   */
  constructor(
    readonly count: number,
    readonly height: number,
    private readonly _open: readonly (readonly [index: number, extra: number])[] = [],
  ) {
    this.total = count * height + _open.reduce((sum, [, extra]) => sum + extra, 0);
  }

  /** Where a row begins. */
  top(index: number): number {
    let top = index * this.height;
    for (const [at, extra] of this._open) {
      if (at >= index) break;
      top += extra;
    }
    return top;
  }

  /** The row at this place; the first or last one beyond the ends. */
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
