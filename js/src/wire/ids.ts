/**
 * Message ids: `msg_` and a ULID, monotonic within a page or process.
 *
 * 48 bits of Unix milliseconds and 80 random bits in Crockford's base 32. Within one millisecond,
 * or while the clock stops or goes backwards, the random part is incremented, so ids sort in the
 * order of their creation. HIP-56 recommends this form; neither the client nor a server relies on
 * the order.
 */

const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const TIME_DIGITS = 10;
const RANDOM_DIGITS = 16;

function systemRandom(count: number): Uint8Array {
  return crypto.getRandomValues(new Uint8Array(count));
}

/** Creates ids. */
export class IdMaker {
  private _last = -1;
  private _text = '';

  /**
   * @param _wallMs Returns Unix milliseconds.
   * @param _random Returns this number of random bytes.
   */
  constructor(
    private readonly _wallMs: () => number = Date.now,
    private readonly _random: (count: number) => Uint8Array = systemRandom,
  ) {}

  /** Create an id, greater than every earlier one of this object. */
  messageId(): string {
    const now = Math.max(0, Math.floor(this._wallMs()));
    if (now > this._last) {
      this._last = now;
      let text = '';
      for (let rest = now; text.length < TIME_DIGITS; rest = Math.floor(rest / 32))
        text = ALPHABET[rest % 32] + text;
      for (const byte of this._random(RANDOM_DIGITS)) text += ALPHABET[byte % 32];
      this._text = text;
    } else {
      const { _text: text } = this;
      let at = text.length - 1;
      while (text[at] === 'Z') at -= 1;
      const next = ALPHABET.indexOf(text.charAt(at)) + 1;
      this._text = (text.slice(0, at) + ALPHABET[next]).padEnd(text.length, '0');
      // A carry moved the time on: the next id of that millisecond has to be greater.
      if (at < TIME_DIGITS) this._last += 1;
    }
    return `msg_${this._text}`;
  }
}

const maker = /* @__PURE__ */ new IdMaker();

/** Create a message id, `msg_` and a ULID. */
export function messageId(): string {
  return maker.messageId();
}
