/** The list of messages. Only visible rows are in the document, whatever the message rate. */

import type { Message } from '@hanzoai/pubsub';

import { h, setAttribute } from '../dom.js';
import { effect, listen, onEnd, Signal } from '../reactive.js';
import type { Entry } from './buffer.js';
import { detail } from './detail.js';
import type { Feed } from './feed.js';
import { RowLayout } from './layout.js';
import { row } from './row.js';

const AROUND = 6;
const OPEN_MAX = 50;
const NEAR_END = 8;

/** The parts of the page that the list uses. */
export interface ListOptions {
  readonly feed: Feed;
  readonly toneOf: (topic: string) => number;
  readonly again: (message: Message) => void;
  /** Called when the user scrolls to the top. */
  readonly atTop: () => void;
  /** The element above the first row. */
  readonly head: HTMLElement;
}

/** The list; see `ListOptions`. */
export class MessageList {
  readonly element: HTMLElement;
  /** Whether the list scrolls to the newest message. */
  readonly following: Signal<boolean> = new Signal(true);
  private readonly _space = h('div', { class: 'space' });
  private readonly _rows = new Map<number, HTMLElement>();
  private readonly _open = new Map<number, number>();
  private readonly _feed: Feed;
  private _layout = new RowLayout(0, 1);
  private _entries: readonly Entry[] = [];
  /** The scroll position that was seen last. */
  private _top = 0;
  private _anchor: { readonly key: number; readonly offset: number } | undefined;
  private _frame = 0;
  private _rowHeight = 34;
  private readonly _sizes: ResizeObserver;

  constructor(private readonly _options: ListOptions) {
    this._feed = _options.feed;
    this.element = h(
      'div',
      { class: 'list', role: 'region', tabindex: 0, 'aria-label': 'List of messages' },
      _options.head,
      this._space,
    );
    this._sizes = new ResizeObserver((sizes) => {
      for (const { target } of sizes) this._measure(target as HTMLElement);
      this._draw();
    });
    this._sizes.observe(this.element);
    onEnd(() => this._sizes.disconnect());
    onEnd(() => cancelAnimationFrame(this._frame));
    listen(this.element, 'scroll', () => this._scrolled(), { passive: true });
    listen(this.element, 'click', (event: MouseEvent) => this._clicked(event));
    listen(this.element, 'keydown', (event: KeyboardEvent) => this._key(event));
    effect(() => {
      void this._feed.changed.value;
      this._later();
    });
    effect(() => {
      this.element.classList.toggle('narrowed', this._feed.narrowed.value !== undefined);
      this.following.value = true;
    });
  }

  /** Scroll to the newest message, and follow new ones. */
  toEnd(): void {
    this.following.value = true;
    this._anchor = undefined;
    this._draw();
  }

  /** Open a message and scroll to it. For a gap, only scroll to it. */
  show(key: number): void {
    if (this._frame) this._draw();
    if (this._index(key) < 0) return;
    this.following.value = false;
    this._reveal(key);
    if (!this._open.has(key)) this._toggle(key);
    this._rows.get(key)?.querySelector<HTMLElement>('.line')?.focus({ preventScroll: true });
  }

  private _later(): void {
    this._frame ||= requestAnimationFrame(() => {
      this._frame = 0;
      this._draw();
    });
  }

  private _measure(target: HTMLElement): void {
    if (target === this.element) {
      const height = Number.parseFloat(getComputedStyle(this._space).getPropertyValue('--row'));
      if (height > 0) this._rowHeight = height;
      return;
    }
    const key = Number(target.parentElement?.dataset['key']);
    if (this._open.has(key)) this._open.set(key, target.offsetHeight);
  }

  /** Update the elements from the entries and the scroll position. */
  private _draw(): void {
    const entries = this._feed.view;
    const changed = entries !== this._entries || this._layout.count !== entries.length;
    this._entries = entries;
    const open: [number, number][] = [];
    if (this._open.size) {
      const keys = new Set<number>();
      entries.forEach(({ key }, index) => {
        const extra = this._open.get(key);
        if (extra === undefined) return;
        keys.add(key);
        open.push([index, extra]);
      });
      for (const key of this._open.keys()) if (!keys.has(key)) this._open.delete(key);
    }
    this._layout = new RowLayout(entries.length, this._rowHeight, open);
    this._space.style.height = `${this._layout.total}px`;
    // The role `feed` requires articles.
    setAttribute(this._space, 'role', entries.length ? 'feed' : undefined);
    setAttribute(this._space, 'aria-label', entries.length ? 'Messages' : undefined);
    const { element } = this;
    if (this.following.peek()) {
      element.scrollTop = element.scrollHeight;
      this._top = element.scrollTop;
    } else if (changed && this._anchor) this._restore(this._anchor);
    this._show();
  }

  private _restore({ key, offset }: { key: number; offset: number }): void {
    const index = this._entries.findIndex((entry) => entry.key === key);
    const top = this._space.offsetTop + (index < 0 ? 0 : this._layout.top(index) + offset);
    if (Math.abs(this.element.scrollTop - top) > 1) this.element.scrollTop = top;
  }

  private _show(): void {
    const { scrollTop, clientHeight } = this.element;
    const y = scrollTop - this._space.offsetTop;
    const { count } = this._layout;
    const first = Math.max(0, this._layout.indexAt(y) - AROUND);
    const last = Math.min(count - 1, this._layout.indexAt(y + clientHeight) + AROUND);
    const wanted = count ? this._entries.slice(first, last + 1) : [];
    this._remove(new Set(wanted.map(({ key }) => key)));
    let previous: HTMLElement | undefined;
    wanted.forEach((entry, n) => {
      previous = this._place(entry, first + n, previous);
    });
    const top = this._entries[this._layout.indexAt(y)];
    this._anchor = top && {
      key: top.key,
      offset: y - this._layout.top(this._layout.indexAt(y)),
    };
  }

  /**
   * Remove the rows that are not visible. The row that has the focus stays while its entry exists.
   */
  private _remove(wanted: ReadonlySet<number>): void {
    const focused = document.activeElement?.closest<HTMLElement>('.row');
    for (const [key, element] of this._rows) {
      if (wanted.has(key) || (element === focused && this._index(key) >= 0)) continue;
      if (element === focused) this.element.focus({ preventScroll: true });
      element.remove();
      this._rows.delete(key);
    }
  }

  private _place(entry: Entry, index: number, previous: HTMLElement | undefined): HTMLElement {
    let element = this._rows.get(entry.key);
    if (!element) {
      element = row(entry, this._options.toneOf);
      element.dataset['key'] = String(entry.key);
      this._rows.set(entry.key, element);
      if (this._open.has(entry.key)) this._unfold(element, entry);
    }
    // Keep the order in the document, which is the reading order. Moving a row would take its
    // focus, so the other rows move around it.
    let following = previous ? previous.nextSibling : this._space.firstChild;
    while (following && following !== element && element.isConnected) {
      following = following.nextSibling;
    }
    if (following !== element) this._space.insertBefore(element, following);
    element.style.transform = `translateY(${this._layout.top(index)}px)`;
    element.setAttribute('aria-posinset', String(index + 1));
    element.setAttribute('aria-setsize', String(this._layout.count));
    return element;
  }

  private _index(key: number): number {
    return this._entries.findIndex((entry) => entry.key === key);
  }

  private _scrolled(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END;
    // A list that has become lower, because a notice needs space, is not at its end any more. Only
    // scrolling up ends the following.
    this.following.value = atEnd || (this.following.peek() && scrollTop >= this._top);
    this._top = scrollTop;
    this._show();
    if (scrollTop < 40 && !atEnd) this._options.atTop();
  }

  private _clicked(event: MouseEvent): void {
    const line = (event.target as Element).closest<HTMLElement>('.line');
    const found = line?.closest<HTMLElement>('.row');
    if (found) this._toggle(Number(found.dataset['key']));
  }

  private _toggle(key: number): void {
    const element = this._rows.get(key);
    const entry = this._entries[this._index(key)];
    if (!element || entry?.kind !== 'message') return;
    if (this._open.has(key)) {
      this._open.delete(key);
      element.querySelector('.detail')?.remove();
      element.querySelector('.line')?.setAttribute('aria-expanded', 'false');
    } else {
      const [oldest] = this._open.keys();
      if (this._open.size >= OPEN_MAX && oldest !== undefined) this._toggle(oldest);
      this._open.set(key, 0);
      // Stop following, so that an opened message stays in place.
      this.following.value = false;
      this._unfold(element, entry);
      this._measure(element.querySelector('.detail') as HTMLElement);
    }
    this._draw();
    this._reveal(key);
  }

  private _unfold(element: HTMLElement, entry: Entry): void {
    if (entry.kind !== 'message') return;
    const part = detail(entry, this._options.again);
    element.append(part);
    element.querySelector('.line')?.setAttribute('aria-expanded', 'true');
    this._sizes.observe(part);
  }

  private _key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const inDetail = (event.target as Element).closest('.detail');
    if (inDetail) {
      if (event.key === 'Escape') {
        const found = inDetail.closest<HTMLElement>('.row');
        found?.querySelector<HTMLElement>('.line')?.focus();
        event.preventDefault();
      }
      return;
    }
    // A key acts on the current list, so draw a pending frame first.
    if (this._frame) this._draw();
    const focused = (event.target as Element).closest<HTMLElement>('.row');
    const last = this._layout.count - 1;
    const at = focused ? this._index(Number(focused.dataset['key'])) : last + 1;
    const steps: Readonly<Record<string, number>> = {
      ArrowUp: at - 1,
      k: at - 1,
      ArrowDown: Math.min(last, at + 1),
      j: Math.min(last, at + 1),
      Home: 0,
      End: last,
    };
    const next = steps[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    if (next < 0) this._options.atTop();
    this._focus(Math.max(0, next), event.key === 'End');
  }

  private _focus(index: number, atEnd: boolean): void {
    const entry = this._entries[index];
    if (!entry) return;
    this.following.value = atEnd;
    this._reveal(entry.key);
    const line = this._rows.get(entry.key)?.querySelector<HTMLElement>('.line');
    line?.focus({ preventScroll: true });
  }

  /** Scroll until a row is visible. */
  private _reveal(key: number): void {
    const index = this._index(key);
    if (index < 0) return;
    const { element, _space: space, _layout: layout } = this;
    const top = space.offsetTop + layout.top(index);
    const bottom = top + this._rowHeight + (this._open.get(key) ?? 0);
    if (top < element.scrollTop || bottom - top > element.clientHeight) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight) {
      element.scrollTop = bottom - element.clientHeight;
    }
    this._show();
  }
}
