/** The parts of the page around the text: figures, people, what happened, the token. */

import type { PresenceMember } from '@hanzoai/pubsub';

/** The element with an id; the page has it. */
export function byId<Found extends Element = HTMLElement>(id: string): Found {
  return document.getElementById(id) as unknown as Found;
}

function make(tag: string, className: string, ...children: (Node | string)[]): HTMLElement {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Counters by name. */
export class Figures<Name extends string> {
  private readonly _boxes = new Map<Name, { box: HTMLElement; value: HTMLElement }>();

  constructor(root: Element, names: readonly Name[]) {
    for (const name of names) {
      const value = make('dd', '', '0');
      const box = make('div', '', make('dt', '', name), value);
      box.dataset['figure'] = name;
      root.append(box);
      this._boxes.set(name, { box, value });
    }
  }

  set(name: Name, value: string | number, note = '', look = ''): void {
    const found = this._boxes.get(name);
    if (!found) return;
    const text = typeof value === 'number' ? value.toLocaleString('en') : value;
    if (found.value.dataset['shown'] === text + note) return;
    found.value.dataset['shown'] = text + note;
    found.value.replaceChildren(text, ...(note ? [make('small', '', ` ${note}`)] : []));
    found.box.className = look;
  }
}

const SIGNS = { cut: '✂', back: '↻', rotated: '⟳', people: '☺', stream: '▶', said: '❝', loss: '✗' };

/** What happened, newest first. */
export class Happenings {
  constructor(
    private readonly _list: Element,
    private readonly _began: number,
  ) {}

  add(kind: keyof typeof SIGNS, text: string): void {
    const at = ((Date.now() - this._began) / 1_000).toFixed(1);
    const sign = make('span', '', SIGNS[kind]);
    sign.dataset['kind'] = kind;
    this._list.prepend(make('li', '', make('time', 'number', at), sign, make('span', '', text)));
    while (this._list.childElementCount > 200) this._list.lastElementChild?.remove();
  }
}

/** `alice` is A, `browser-2` is B2. */
function initials(name: string): string {
  return `${name.charAt(0).toUpperCase()}${/\d+$/.exec(name)?.[0] ?? ''}`;
}

/** List the members with their status. */
export function drawPeople(list: Element, members: readonly PresenceMember[], self: string): void {
  // A member who has just reconnected may be listed twice until the lost connection times out.
  const people = new Map(members.map((member) => [member.user_id, member]));
  list.replaceChildren(
    ...[...people.values()].map(({ user_id, name, status }) => {
      const who = name || user_id;
      const tone = [...user_id].reduce((sum, letter) => sum * 7 + letter.charCodeAt(0), 0) % 12;
      const note = user_id === self ? 'this page' : '';
      const doing = make('span', status === 'typing' ? 'typing' : 'quiet');
      doing.textContent = [status === 'typing' ? 'typing …' : status, note]
        .filter(Boolean)
        .join(' · ');
      const item = make(
        'li',
        `tone-${tone}`,
        make('span', 'avatar', initials(who)),
        make('b', '', who),
        doing,
      );
      item.dataset['user'] = user_id;
      return item;
    }),
  );
}

/** The remaining lifetime of the current token. */
export class TokenRing {
  private _from = 0;
  private _until = 0;

  constructor(
    private readonly _ring: SVGElement,
    private readonly _text: Element,
  ) {}

  renewed(until: number): void {
    this._from = Date.now();
    this._until = until;
  }

  draw(): void {
    const left = Math.max(0, this._until - Date.now());
    const whole = Math.max(1, this._until - this._from);
    this._ring.setAttribute('stroke-dashoffset', String(1 - left / whole));
    const seconds = Math.ceil(left / 1_000);
    this._text.textContent =
      seconds < 120 ? `token ${seconds} s` : `token ${Math.round(seconds / 60)} min`;
  }
}
