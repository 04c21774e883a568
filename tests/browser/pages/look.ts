/** The layout of the test pages, so that their screenshots can be read. */

const CSS = `
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; --line: color-mix(in srgb, currentColor 18%, transparent); }
body { margin: 0; padding: 20px 24px; display: grid; gap: 14px; grid-template: auto auto 1fr / 1fr 220px; height: 100vh; box-sizing: border-box; }
h1 { font-size: 17px; margin: 0; grid-column: 1 / -1; display: flex; gap: 12px; align-items: center; }
.state { font-size: 12px; padding: 2px 10px; border-radius: 99px; background: var(--line); font-weight: 500; }
.state[data-state=connected] { background: #16794b; color: #fff; }
.state[data-state=reconnecting] { background: #b54708; color: #fff; }
.counts { grid-column: 1 / -1; display: flex; gap: 28px; margin: 0; }
.counts div { display: grid; }
dt { font-size: 12px; opacity: .7; } dd { margin: 0; font-size: 22px; font-variant-numeric: tabular-nums; }
ol, ul { list-style: none; margin: 0; padding: 10px 14px; border: 1px solid var(--line); border-radius: 10px; overflow: auto; }
ul:empty { display: none; } ol:has(+ ul:empty) { grid-column: 1 / -1; }
li { overflow-wrap: anywhere; }
li:not(:has(b)) { opacity: .75; font-size: 13px; }
li b { color: #5b5bd6; }
small { opacity: .7; }
form { grid-column: 1 / -1; }
input { width: 100%; box-sizing: border-box; font: inherit; padding: 8px 12px; border: 1px solid var(--line); border-radius: 8px; }
`;

/** Create an element with text and children. */
export function make(
  tag: string,
  properties: Record<string, string> = {},
  ...children: (Node | string)[]
): HTMLElement {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** The layout of a page: title with the state, counters by name, a long list, a short list. */
export function frame(title: string, counters: readonly string[]) {
  const state = make('span', { class: 'state' }, 'initialized');
  const figures = new Map(counters.map((name) => [name, make('dd', {}, '0')]));
  const list = make('ol');
  const side = make('ul');
  document.head.append(make('style', {}, CSS));
  document.body.replaceChildren(
    make('h1', {}, title, state),
    make(
      'dl',
      { class: 'counts' },
      ...[...figures].map(([name, figure]) => make('div', {}, make('dt', {}, name), figure)),
    ),
    list,
    side,
  );
  return {
    side,
    state(now: string): void {
      state.textContent = state.dataset['state'] = now;
    },
    count(name: string, value: number): void {
      const figure = figures.get(name);
      if (figure) figure.textContent = value.toLocaleString('en');
    },
    tell(...parts: (Node | string)[]): void {
      list.append(make('li', {}, ...parts));
      while (list.childElementCount > 200) list.firstElementChild?.remove();
      list.scrollTop = list.scrollHeight;
    },
  };
}
