/** Values in order, of which usually the first one is removed. */

/** Number of removed values after which their space may be released. */
const SPENT = 64;

/**
 * A list in which the first value is found and removed in constant time, and any other in linear
 * time.
 *
 * It is not a map, because the tables that a map outgrows keep removed values alive.
 */
export class Fifo<Value extends object> {
  /** The values of the first `_gone` places are removed. */
  private readonly _values: Value[] = [];
  private _gone = 0;

  get _size(): number {
    return this._values.length - this._gone;
  }

  get _first(): Value | undefined {
    return this._values[this._gone];
  }

  /** All values, in order, or this many; changes do not affect the returned list. */
  _all(most: number = Infinity): Value[] {
    return this._values.slice(this._gone, this._gone + most);
  }

  _add(value: Value): void {
    this._values.push(value);
  }

  /** Add a value before all that are later; these are behind all others. */
  _insert(value: Value, isLater: (other: Value) => boolean): void {
    const { _values: values } = this;
    // Nearly every value is the latest. The place of any other is usually near the head.
    if (!this._size || !isLater(values.at(-1) as Value)) {
      this._add(value);
      return;
    }
    let place = this._gone;
    while (!isLater(values[place] as Value)) place += 1;
    values.splice(place, 0, value);
  }

  _find(test: (value: Value) => boolean): Value | undefined {
    const { _first: first } = this;
    return first && test(first) ? first : this._all().find(test);
  }

  _shift(): Value | undefined {
    const { _values: values, _first: first } = this;
    if (first) {
      values[this._gone] = undefined as never;
      this._gone += 1;
      if (this._gone > SPENT && this._gone * 2 > values.length) {
        values.splice(0, this._gone);
        this._gone = 0;
      }
    }
    return first;
  }

  /** Remove a value; returns false if it is not in the list. */
  _delete(value: Value | undefined): boolean {
    const place = this._values.indexOf(value as Value, this._gone);
    if (place < 0) return false;
    if (place > this._gone) this._values.splice(place, 1);
    else this._shift();
    return true;
  }
}
