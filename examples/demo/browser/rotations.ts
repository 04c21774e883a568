/** How often the token of an open connection was renewed. Pure. */

/** Ends of two tokens that are closer than this, in milliseconds, are of one renewal. */
const SAME = 1_000;

/** Counts a renewal once, however often the client asks for its token. */
export class Rotations {
  count = 0;
  private _end = 0;

  /**
   * Take note of a token that was fetched.
   *
   * @param reason Why the client asked for it.
   * @param end When the token ends, Unix ms.
   * @returns Whether it begins a renewal that was not counted before.
   */
  fetched(reason: string, end: number): boolean {
    const isNew = reason === 'expiring' && end - this._end > SAME;
    this._end = end;
    if (isNew) this.count += 1;
    return isNew;
  }
}
