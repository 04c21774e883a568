/**
 * Elements as expressions. A function as a child or attribute is updated with the signals it reads.
 */

import { effect } from './reactive.js';

type Value = string | number | boolean | null | undefined;
/** The content of an element. */
export type Child = Node | string | number | null | undefined | false | (() => string | number);
/** Attributes, and event listeners as `on…`. */
export type Attributes = Readonly<Record<string, Value | (() => Value) | ((event: never) => void)>>;

/** Characters that change the direction of text, so that it reads differently than it is. */
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
/** Attributes whose value is shown or read out. */
const SHOWN = new Set(['title', 'aria-label']);

const SVG = 'http://www.w3.org/2000/svg';

/** Create an HTML element. */
export function h<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  fill(element, attributes, children);
  return element;
}

/** Create an SVG element. */
export function svg(
  name: string,
  attributes: Attributes = {},
  ...children: readonly Child[]
): SVGElement {
  const element = document.createElementNS(SVG, name) as SVGElement;
  fill(element, attributes, children);
  return element;
}

/** The name of a topic, which may wrap after its dots. */
export function breakable(name: string): (string | HTMLElement)[] {
  return name.split(/(?<=\.)/).flatMap((part, n) => (n ? [h('wbr'), part] : [part]));
}

/** Replace the content of an element. */
export function replace(element: Element, ...children: readonly Child[]): void {
  element.replaceChildren(...children.flatMap(nodes));
}

/** Set an attribute. true sets an empty value; false, null and undefined remove it. */
export function setAttribute(element: Element, name: string, value: Value): void {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else {
    const raw = value === true ? '' : String(value);
    const text = SHOWN.has(name) ? escapeTurns(raw) : raw;
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

function fill(element: Element, attributes: Attributes, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value as unknown as EventListener);
    } else if (typeof value === 'function') {
      effect(() => setAttribute(element, name, (value as () => Value)()));
    } else {
      setAttribute(element, name, value);
    }
  }
  element.append(...children.flatMap(nodes));
}

function nodes(child: Child): (Node | string)[] {
  if (child === null || child === undefined || child === false) return [];
  if (typeof child === 'object') return [child];
  if (typeof child !== 'function') return [escapeTurns(String(child))];
  const text = document.createTextNode('');
  effect(() => {
    const shown = escapeTurns(String(child()));
    if (text.data !== shown) text.data = shown;
  });
  return [text];
}

/** Texts come from other clients: show `\u202e`, and do not follow it. */
function escapeTurns(text: string): string {
  return text.replace(TURNS, (turn) => `\\u${turn.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
