/** The publish form. */

import { type Message, type Published, type PubSub, validateTopic } from '@hanzoai/pubsub';
import type { Topics } from './active_topics.js';
import { copyButton } from './copy.js';
import { h, replace } from './dom.js';
import { icon } from './icons.js';
import { pretty } from './messages/json_text.js';
import { shortSeq } from './messages/row.js';
import { type Problem, problemOf, sentence } from './notices.js';
import { type Draft, readData, readDraft, type Slip } from './publication.js';
import { effect, Signal } from './reactive.js';
import { recall, remember } from './storage.js';

const RECENT_MAX = 12;
const SUGGESTED = 100;
const KEY = 'publish-form';

type Result =
  | { readonly kind: 'sending'; readonly waits: boolean }
  | { readonly kind: 'done'; readonly published: Published; readonly took: number }
  | { readonly kind: 'refused'; readonly problem: Problem };

/** Its functions for the rest of the page. */
export interface PublishPanel {
  readonly element: HTMLElement;
  /** Fill the form. */
  fill(draft: Partial<Draft>): void;
  /** Fill the form with a received message. */
  again(message: Message): void;
  focus(): void;
  /** Show the form. */
  unfold(): void;
}

/** Build the form. */
export function publishPanel(ps: PubSub, topics: Topics): PublishPanel {
  const slip = new Signal<Slip | undefined>(undefined);
  const result = new Signal<Result | undefined>(undefined);
  const recent = new Signal<readonly Draft[]>([]);
  let at = -1;

  const topic = field('topic', slip, {
    class: 'mono',
    list: 'topic-names',
    placeholder: 'demo.hello',
    value: 'demo.hello',
    maxlength: 255,
  });
  const type = field('type', slip, { placeholder: 'message', maxlength: 128 });
  const ttl = field('ttl', slip, { placeholder: 'default', inputmode: 'numeric' });
  const id = field('id', slip, {
    class: 'mono',
    placeholder: 'auto',
    maxlength: 128,
  });
  const data = h('textarea', {
    id: 'publish-data',
    class: 'mono',
    rows: 4,
    spellcheck: 'false',
    autocapitalize: 'off',
    'aria-describedby': 'publish-slip',
    'aria-invalid': () => (slip.value?.field === 'data' ? 'true' : undefined),
    'aria-keyshortcuts': 'Control+Enter Meta+Enter',
  });
  data.value = '{"text": "hello"}';
  const inputs = { topic, type, ttl, id, data };

  const draft = (): Draft => ({
    topic: topic.value,
    type: type.value,
    data: data.value,
    ttl: ttl.value,
    id: id.value,
  });
  const fill = (next: Partial<Draft>): void => {
    for (const [name, text] of Object.entries(next) as [keyof Draft, string][]) {
      inputs[name].value = text;
    }
    slip.value = undefined;
  };
  const check = (): void => {
    const found = readData(data.value);
    slip.value = 'field' in found ? found : undefined;
  };
  data.addEventListener('input', check);
  for (const input of [topic, type, ttl, id]) {
    input.addEventListener('input', () => {
      if (slip.peek()?.field === input.name) slip.value = undefined;
    });
  }

  const send = async (): Promise<void> => {
    const given = draft();
    const read = readDraft(given, validateTopic);
    if ('field' in read) {
      slip.value = read;
      inputs[read.field].focus();
      return;
    }
    slip.value = undefined;
    recent.value = [given, ...recent.peek().filter((each) => !equal(each, given))].slice(
      0,
      RECENT_MAX,
    );
    at = -1;
    const began = performance.now();
    result.value = { kind: 'sending', waits: ps.state !== 'connected' };
    try {
      const published = await ps.publish(read.topic, read.message, read.options);
      result.value = { kind: 'done', published, took: performance.now() - began };
    } catch (error) {
      result.value = { kind: 'refused', problem: problemOf(error) };
    }
  };

  const walk = (step: number): void => {
    const drafts = recent.peek();
    if (!drafts.length) return;
    at = Math.max(0, Math.min(drafts.length - 1, at + step));
    const found = drafts[at];
    if (found) fill(found);
  };

  const open = new Signal(recall('localStorage', KEY) === 'open');
  const unfold = (on: boolean): void => {
    open.value = on;
    remember('localStorage', KEY, on ? 'open' : undefined);
    // Update the class at once, because the element that gets the focus must not be hidden.
    element.classList.toggle('folded', !on);
  };
  const form = h(
    'form',
    {
      class: 'publish-form',
      novalidate: true,
      onsubmit: (event: Event) => {
        event.preventDefault();
        void send();
      },
      onkeydown: (event: KeyboardEvent) => {
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          void send();
        } else if (event.altKey && (event.key === 'ArrowUp' || event.key === 'ArrowDown')) {
          event.preventDefault();
          walk(event.key === 'ArrowUp' ? 1 : -1);
        }
      },
    },
    h(
      'div',
      { class: 'fields' },
      labelled('Topic', topic, 'wide'),
      labelled('Type', type),
      labelled('TTL, s', ttl, 'narrow'),
      labelled('Id', id),
    ),
    h('div', { class: 'field data' }, h('label', { for: 'publish-data' }, 'Data, JSON'), data),
    h(
      'div',
      { class: 'publish-foot' },
      h('button', { class: 'primary' }, icon('send'), 'Publish'),
      h('span', { class: 'keys' }, h('kbd', {}, 'Ctrl'), h('kbd', {}, 'Enter')),
      recentMenu(recent, fill),
      outcome(slip, result),
    ),
    suggestions(topics),
  );
  const element: HTMLElement = h(
    'section',
    {
      class: `panel publish${open.peek() ? '' : ' folded'}`,
      id: 'publish',
      'aria-labelledby': 'publish-title',
      tabindex: -1,
    },
    h(
      'header',
      { class: 'panel-head' },
      h('h2', { id: 'publish-title' }, 'Publish'),
      h('span', { class: 'push' }),
      h(
        'button',
        {
          class: 'ghost small fold',
          type: 'button',
          'aria-expanded': () => String(open.value),
          onclick: () => {
            unfold(!open.peek());
            if (open.peek()) data.focus();
          },
        },
        () => (open.value ? 'Hide the form' : 'Write a message'),
      ),
    ),
    form,
  );
  return {
    element,
    fill,
    again: (message) => {
      fill({
        topic: message.topic,
        type: message.type,
        data: pretty(message.data),
        ttl: '',
        id: '',
      });
      unfold(true);
      data.focus();
    },
    focus: () => {
      unfold(true);
      data.focus();
    },
    unfold: () => unfold(true),
  };
}

function field(
  name: keyof Draft,
  slip: Signal<Slip | undefined>,
  more: Record<string, string | number>,
): HTMLInputElement {
  return h('input', {
    id: `publish-${name}`,
    name,
    'aria-describedby': 'publish-slip',
    'aria-invalid': () => (slip.value?.field === name ? 'true' : undefined),
    autocomplete: 'off',
    autocapitalize: 'off',
    spellcheck: 'false',
    ...more,
  });
}

function labelled(label: string, input: HTMLInputElement, more = ''): HTMLElement {
  return h('div', { class: `field ${more}` }, h('label', { for: input.id }, label), input);
}

function recentMenu(
  recent: Signal<readonly Draft[]>,
  fill: (draft: Draft) => void,
): HTMLSelectElement {
  const menu = h('select', {
    'aria-label': 'Recent publishes',
    onchange: () => {
      const found = recent.peek()[Number(menu.value)];
      if (found) fill(found);
      menu.value = '';
    },
  });
  effect(() => {
    const drafts = recent.value;
    menu.hidden = !drafts.length;
    replace(
      menu,
      h('option', { value: '' }, 'Recent'),
      ...drafts.map((draft, n) =>
        h(
          'option',
          { value: n },
          `${draft.topic} · ${draft.data.replace(/\s+/g, ' ').slice(0, 40)}`,
        ),
      ),
    );
  });
  return menu;
}

function outcome(slip: Signal<Slip | undefined>, result: Signal<Result | undefined>): HTMLElement {
  const box = h('div', { class: 'outcome', id: 'publish-slip', role: 'status' });
  effect(() => {
    const wrong = slip.value;
    const last = result.value;
    if (wrong) replace(box, h('span', { class: 'slip' }, wrong.message));
    else if (!last) replace(box);
    else if (last.kind === 'sending') {
      const text = last.waits ? 'Waiting for the connection…' : 'Publishing…';
      replace(box, h('span', { class: 'quiet' }, text));
    } else if (last.kind === 'refused') replace(box, refusal(last.problem));
    else replace(box, ...receipt(last.published, last.took));
  });
  return box;
}

function refusal({ code, message, remedy }: Problem): HTMLElement {
  return h(
    'span',
    { class: 'slip' },
    h('code', { class: 'code' }, code),
    ' ',
    ...sentence(message),
    ' ',
    h('span', { class: 'quiet' }, ...sentence(remedy)),
  );
}

function receipt({ id, seq, duplicate }: Published, took: number): HTMLElement[] {
  return [
    h(
      'span',
      { class: duplicate ? 'tag wait' : 'tag good' },
      duplicate ? 'Duplicate' : 'Published',
    ),
    h(
      'span',
      { class: duplicate ? '' : 'number' },
      duplicate
        ? 'this id was published before; nothing was sent again'
        : `${took < 10 ? took.toFixed(1) : Math.round(took)} ms`,
    ),
    h(
      'span',
      { class: 'number quiet', title: seq === undefined ? '' : String(seq) },
      seq === undefined ? 'not retained' : `#${shortSeq(seq)}`,
    ),
    h('code', { class: 'clip quiet', title: id }, id),
    copyButton('Copy the id', () => id, false),
  ];
}

function suggestions(topics: Topics): HTMLElement {
  const list = h('datalist', { id: 'topic-names' });
  let shown = '';
  effect(() => {
    const names = topics.list.value.slice(0, SUGGESTED).map(({ name }) => name);
    if (names.join(' ') === shown) return;
    shown = names.join(' ');
    replace(list, ...names.map((value) => h('option', { value })));
  });
  return list;
}

function equal(one: Draft, other: Draft): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
