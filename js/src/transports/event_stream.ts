/** Parses server-sent events from chunks of bytes of any size (WHATWG HTML, 9.2.6). */

/** A line: the name of a field and its value; a comment has no name. */
const FIELD = /^([^:]*):? ?(.*)/s;

/** One event. */
export interface StreamEvent {
  /** Its name; `message` if it has none. */
  readonly event: string;
  readonly data: string;
}

/** Parses one stream. */
export class EventParser {
  /** Milliseconds to wait before the next stream, from the server's `retry:` field. */
  retry: number | undefined;
  private readonly _decoder = new TextDecoder();
  private _line = '';
  private _afterCr = false;
  private _event = '';
  private _data: string[] = [];
  private _size = 0;

  /** @param _limit Maximum characters of an event. */
  constructor(private readonly _limit: number) {}

  /**
   * Parse a chunk, and return the events that it completes.
   *
   * @throws RangeError An event is over the limit.
   */
  push(bytes: Uint8Array): StreamEvent[] {
    const found: StreamEvent[] = [];
    let text = this._decoder.decode(bytes, { stream: true });
    if (this._afterCr && text) {
      if (text.startsWith('\n')) text = text.slice(1);
      this._afterCr = false;
    }
    if (text.endsWith('\r')) this._afterCr = true;
    const lines = text.split(/\r\n|\r|\n/);
    lines[0] = this._line + lines[0];
    this._line = lines.pop() ?? '';
    for (const line of lines) {
      const event = this._take(line);
      if (event) found.push(event);
    }
    if (this._size + this._line.length > this._limit) throw new RangeError();
    return found;
  }

  /** Process a line; an empty one ends an event. */
  private _take(line: string): StreamEvent | undefined {
    const data = this._data;
    if (!line) {
      const event = this._event || 'message';
      this._event = '';
      this._data = [];
      this._size = 0;
      return data.length ? { event, data: data.join('\n') } : undefined;
    }
    const [, field, value = ''] = FIELD.exec(line) ?? [];
    if (field === 'event') this._event = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.retry = Number(value);
    else if (field === 'data') {
      data.push(value);
      // Count the whole line, because lines without a value also use memory.
      this._size += line.length;
      if (this._size > this._limit) throw new RangeError();
    }
    return undefined;
  }
}
