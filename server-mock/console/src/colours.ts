/** A colour for each topic: stable across reloads, and distinct from its neighbours. */

/** Number of colours: `--tone-0` and the following ones in the style sheet. */
export const TONES = 12;

/** Tones by topic, chosen by the hash of the name, or the next unused one. */
export class Colours {
  private readonly _tones = new Map<string, number>();
  private readonly _used = new Array<number>(TONES).fill(0);

  /** The tone of a topic. */
  of(topic: string): number {
    const known = this._tones.get(topic);
    if (known !== undefined) return known;
    const wanted = hash(topic) % TONES;
    const least = Math.min(...this._used);
    let tone = wanted;
    for (let step = 0; (this._used[tone] ?? 0) > least; step += 1)
      tone = (wanted + step * 5) % TONES;
    this._used[tone] = (this._used[tone] ?? 0) + 1;
    if (this._tones.size < 10_000) this._tones.set(topic, tone);
    return tone;
  }
}

/** FNV-1a, 32 bits. */
function hash(text: string): number {
  let sum = 0x811c9dc5;
  for (let n = 0; n < text.length; n += 1) {
    sum = Math.imul(sum ^ text.charCodeAt(n), 0x01000193) >>> 0;
  }
  return sum;
}
