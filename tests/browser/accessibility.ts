/** Checks of a page that need no person: names, references, headings, contrast, overflow. */

import type { Page } from 'playwright-core';

/** The problems of a page, in words; empty if there are none. */
export async function slipsOf(page: Page): Promise<readonly string[]> {
  return page.evaluate(inspect);
}

/** Runs inside the page. */
function inspect(): string[] {
  const wrong: string[] = [];
  const visible = (element: Element): boolean =>
    element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const name = (element: Element): string =>
    `<${element.tagName.toLowerCase()}${element.id && `#${element.id}`}.${element.className}>`;

  for (const element of document.querySelectorAll(
    'button, input, select, textarea, a[href], [role=tab], [role=dialog], dialog, nav, section',
  )) {
    if (!visible(element)) continue;
    const labelledBy = element.getAttribute('aria-labelledby');
    const label =
      element.getAttribute('aria-label') ??
      (labelledBy ? document.getElementById(labelledBy)?.textContent : undefined) ??
      (element as HTMLInputElement).labels?.[0]?.textContent ??
      (/^(INPUT|SELECT|TEXTAREA|NAV|SECTION)$/.test(element.tagName) ? '' : element.textContent);
    if (!label?.trim()) wrong.push(`${name(element)} has no name`);
  }

  const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
  for (const id of new Set(ids.filter((each, n) => ids.indexOf(each) !== n))) {
    wrong.push(`there are several #${id}`);
  }
  for (const attribute of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for', 'list']) {
    for (const element of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of (element.getAttribute(attribute) ?? '').split(' ')) {
        if (!ids.includes(id)) wrong.push(`${name(element)} names #${id}, which does not exist`);
      }
    }
  }

  const headings = [...document.querySelectorAll('h1, h2, h3, h4')].filter(visible);
  if (headings.filter(({ tagName }) => tagName === 'H1').length !== 1) wrong.push('one h1 is due');
  let level = 0;
  for (const heading of headings) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) wrong.push(`${heading.tagName} follows a heading of level ${level}`);
    level = next;
  }
  if (!document.documentElement.lang) wrong.push('the page has no language');
  if (!document.querySelector('main')) wrong.push('the page has no main part');
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is too wide');

  const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  type Colour = readonly [red: number, green: number, blue: number, alpha: number];
  const known = new Map<string, Colour>();
  const read = (colour: string): Colour => {
    const before = known.get(colour);
    if (before || !context) return before ?? [0, 0, 0, 0];
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r = 0, g = 0, b = 0, a = 0] = context.getImageData(0, 0, 1, 1).data;
    const found: Colour = [r, g, b, a / 255];
    known.set(colour, found);
    return found;
  };
  const over = (top: Colour, below: Colour): Colour => {
    const [r, g, b, a] = top;
    const mix = (one: number, other: number): number => one * a + other * (1 - a);
    return [mix(r, below[0]), mix(g, below[1]), mix(b, below[2]), 1];
  };
  const ground = (element: Element | null): Colour => {
    if (!element) return [255, 255, 255, 1];
    const colour = read(getComputedStyle(element).backgroundColor);
    return colour[3] === 1 ? colour : over(colour, ground(element.parentElement));
  };
  const light = ([r, g, b]: Colour): number => {
    const [red = 0, green = 0, blue = 0] = [r, g, b]
      .map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent?.trim() || !element || !visible(element)) continue;
    if (element.closest('option, [disabled], [aria-disabled=true], .unseen')) continue;
    const style = getComputedStyle(element);
    const below = ground(element);
    const [one, other] = [light(over(read(style.color), below)), light(below)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) {
      const text = node.textContent.trim().slice(0, 30);
      wrong.push(`${name(element)} “${text}” has a contrast of ${contrast.toFixed(2)}`);
    }
  }
  return [...new Set(wrong)];
}
