/** Error notices, each shown once, with code and remedy. */

import { PubSubError } from '@hanzoai/pubsub';

import { type Child, h, replace } from './dom.js';
import { icon } from './icons.js';
import { effect, Signal } from './reactive.js';

const SHOWN = 3;

/** A notice. */
export interface Problem {
  readonly code: string;
  readonly message: string;
  readonly remedy: string;
  /** Whether the problem may resolve itself. */
  readonly retryable?: boolean;
}

interface Notice extends Problem {
  readonly times: number;
}

const notices = new Signal<readonly Notice[]>([]);

/** The fields of an error. */
export function problemOf(error: unknown): Problem {
  if (error instanceof PubSubError) {
    const { code, message, remedy, retryable } = error;
    return { code, message, remedy, retryable };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { code: 'console', message, remedy: '' };
}

/** Show an error. If it is shown already, only its count increases. */
export function notify(error: unknown): void {
  const problem = problemOf(error);
  const others = notices.peek().filter((each) => !same(each, problem));
  const before = notices.peek().find((each) => same(each, problem));
  notices.value = [...others, { ...problem, times: (before?.times ?? 0) + 1 }].slice(-SHOWN);
}

/**
 * Show an error of the client, except for a planned restart or a cut, which the status line
 * reports.
 */
export function tellOfClient(error: unknown): void {
  if (problemOf(error).code !== 'going_away') notify(error);
}

/** Remove the notices that a new connection resolves. */
export function settleNotices(): void {
  notices.value = notices.peek().filter((each) => !each.retryable);
}

/** The text of an error as a sentence: a capital at its start, and code between backticks. */
export function sentence(text: string): Child[] {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`
    .split('`')
    .map((part, n) => (n % 2 ? h('code', {}, part) : part));
}

/** The element that shows the notices, without those of an earlier sign-in. */
export function noticeArea(): HTMLElement {
  notices.value = [];
  const area = h('div', { class: 'notices' });
  effect(() => {
    const dismiss = (notice: Notice): void => {
      notices.value = notices.peek().filter((each) => each !== notice);
    };
    replace(
      area,
      ...notices.value.map((notice) =>
        h(
          'div',
          {
            class: notice.retryable ? 'notice passing' : 'notice',
            role: notice.retryable ? 'status' : 'alert',
          },
          h(
            'div',
            {},
            h('code', { class: 'code' }, notice.code),
            notice.times > 1 && h('span', { class: 'times' }, `×${notice.times}`),
            h('p', {}, ...sentence(notice.message)),
            notice.remedy && h('p', { class: 'quiet' }, ...sentence(notice.remedy)),
          ),
          h(
            'button',
            { class: 'ghost icon-only', 'aria-label': 'Dismiss', onclick: () => dismiss(notice) },
            icon('close'),
          ),
        ),
      ),
    );
  });
  return area;
}

function same(one: Problem, other: Problem): boolean {
  return one.code === other.code && one.message === other.message;
}
