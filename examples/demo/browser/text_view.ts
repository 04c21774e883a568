/** The text as it arrives: paragraphs of words, with replayed words and cuts marked. */

export class TextView {
  private _paragraph: HTMLElement | undefined;
  private _waiting: Node[] = [];
  private _mark: HTMLElement | undefined;

  private _follow = true;

  constructor(private readonly _root: HTMLElement) {
    // Don't scroll for a reader who has scrolled up.
    _root.addEventListener('scroll', () => {
      this._follow = _root.scrollHeight - _root.scrollTop - _root.clientHeight < 80;
    });
    new ResizeObserver(() => this._keepUp()).observe(_root);
  }

  /** A word with the white space that follows it. */
  word(content: string, replayed: boolean): void {
    const bare = content.trimEnd();
    const text = content.includes('\n') ? bare : `${bare} `;
    if (replayed) {
      if (!this._mark) {
        this._mark = document.createElement('mark');
        this._waiting.push(this._mark);
      }
      this._mark.append(text);
    } else {
      this._mark = undefined;
      this._waiting.push(document.createTextNode(text));
    }
    if (content.includes('\n')) this._breakLine();
  }

  cut(): void {
    const sign = document.createElement('b');
    sign.className = 'scissors';
    sign.textContent = '✂';
    sign.title = 'The connection was cut here';
    this._mark = undefined;
    this._waiting.push(sign);
  }

  /** Show the words that arrived since the last frame, and keep the end in view. */
  draw(): void {
    if (!this._waiting.length && this._paragraph) return;
    this._flush();
    this._keepUp();
  }

  private _keepUp(): void {
    if (this._follow) this._root.scrollTop = this._root.scrollHeight;
  }

  private _breakLine(): void {
    this._flush();
    this._mark = undefined;
    this._paragraph = undefined;
  }

  private _flush(): void {
    if (!this._paragraph) {
      this._paragraph = document.createElement('p');
      this._root.append(this._paragraph);
    }
    this._paragraph.append(...this._waiting);
    this._waiting = [];
  }
}
