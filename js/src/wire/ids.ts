/**
 * Message ids: `msg_` and a ULID, monotonic within a page or process.
 *
 * 48 bits of Unix milliseconds and 80 random bits in Crockford's base 32. Within one millisecond, or
 * while the clock stands or goes back, the random part counts up, so ids of one maker sort in the
 * order of their making. HIP-56 recommends this form; nothing here or on a server relies on the
 * order.
 */

const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const TIME_DIGITS = 10;
const RANDOM_DIGITS = 16;

function systemRandom(count: number): Uint8Array {
  return crypto.getRandomValues(new Uint8Array(count));
}

/** Makes ids. */
export class IdMaker {
  private _last = -1;
  /** The time in its ten digits. */
  private _time = '';
  private _digits: number[] = [];

  /**
   * @param _wallMs Unix time in milliseconds.
   * @param _random Gives so many random bytes.
   */
  constructor(
    private readonly _wallMs: () => number = Date.now,
    private readonly _random: (count: number) => Uint8Array = systemRandom,
  ) {}

  /** 26 characters, greater than all that came before from this maker. */
  ulid(): string {
    const now = Math.max(0, Math.floor(this._wallMs()));
    if (now > this._last) {
      this._renew(now);
    } else {
      let at = RANDOM_DIGITS - 1;
      while (at >= 0 && this._digits[at] === 31) this._digits[at--] = 0;
      if (at < 0) this._renew(this._last + 1);
      else this._digits[at] = (this._digits[at] ?? 0) + 1;
    }
    let text = this._time;
    for (const digit of this._digits) text += ALPHABET.charAt(digit);
    return text;
  }

  /** A fresh message id, `msg_` and a ULID. */
  messageId(): string {
    return `msg_${this.ulid()}`;
  }

  private _renew(now: number): void {
    this._last = now;
    const digits = now.toString(32).padStart(TIME_DIGITS, '0').slice(-TIME_DIGITS);
    this._time = digits.replace(/./g, (digit) => ALPHABET.charAt(Number.parseInt(digit, 32)));
    this._digits = Array.from(this._random(RANDOM_DIGITS), (byte) => byte & 31);
  }
}

let maker: IdMaker | undefined;

/** A fresh message id, `msg_` and a ULID. */
export function messageId(): string {
  maker ??= new IdMaker();
  return maker.messageId();
}
