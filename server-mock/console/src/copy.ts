/** Buttons that copy a text to the clipboard. */

import { h, replace } from './dom.js';
import { icon } from './icons.js';

/** A button that copies and shows a brief confirmation. */
export function copyButton(label: string, text: () => string, words = true): HTMLButtonElement {
  const button: HTMLButtonElement = h('button', {
    class: words ? 'ghost small' : 'ghost icon-only',
    type: 'button',
    'aria-label': words ? undefined : label,
    onclick: () => void copy(),
  });
  const show = (sign: 'copy' | 'check', shown: string): void =>
    replace(button, icon(sign), words && shown);
  const copy = async (): Promise<void> => {
    const worked = await write(text());
    show(worked ? 'check' : 'copy', worked ? 'Copied' : 'Not copied');
    setTimeout(() => show('copy', label), 1_600);
  };
  show('copy', label);
  return button;
}

async function write(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
