/** Counts the token renewals of an open connection. Without I/O. */

/** Milliseconds: tokens whose expiries are closer than this belong to one renewal. */
const SAME = 1_000;

/** Counts each renewal once, even if the client asks for its token several times. */
export class Rotations {
  count = 0;
  private _end = 0;

  /**
   * Record a token that was fetched.
   *
   * @param reason Why the client asked for it.
   * @param end Expiry of the token, Unix ms.
   * @returns Whether this is a new renewal.
   */
  fetched(reason: string, end: number): boolean {
    const isNew = reason === 'expiring' && end - this._end > SAME;
    this._end = end;
    if (isNew) this.count += 1;
    return isNew;
  }
}
