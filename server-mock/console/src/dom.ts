/**
 * Elements as expressions. A function as a child or attribute is updated with the signals it reads.
 */

import { effect } from './reactive.js';

type Value = string | number | boolean | null | undefined;
/** The content of an element. */
export type Child = Node | string | number | null | undefined | false | (() => string | number);
/** Attributes, and event listeners as `on…`. */
export type Attributes = Readonly<Record<string, Value | (() => Value) | ((event: never) => void)>>;

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

/** Replace the content of an element. */
export function replace(element: Element, ...children: readonly Child[]): void {
  element.replaceChildren(...children.flatMap(nodes));
}

/** Set an attribute. true sets an empty value; false, null and undefined remove it. */
export function setAttribute(element: Element, name: string, value: Value): void {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else {
    const text = value === true ? '' : String(value);
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
  if (typeof child !== 'function') return [typeof child === 'number' ? String(child) : child];
  const text = document.createTextNode('');
  effect(() => {
    const shown = String(child());
    if (text.data !== shown) text.data = shown;
  });
  return [text];
}
