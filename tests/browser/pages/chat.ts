/** A chat with presence and typing indicators; each page is a user. */

import { PubSub } from '@hanzoai/pubsub';

import { frame, make } from './look.js';

const { options, topic, title } = given;
const view = frame(title ?? topic, []);
const ps = new PubSub<Record<string, { readonly text: string }>>(options);
ps.on('state', ({ to }) => view.state(to));

const input = make('input', { placeholder: 'Say something' }) as HTMLInputElement;
const form = make('form', {}, input);
document.body.append(form);

await ps.subscribe(topic, {
  onMessage: ({ sender, data }) => view.tell(make('b', {}, sender?.id ?? '?'), ` ${data.text}`),
  onPresence: (members) => {
    view.side.replaceChildren(
      ...members.map(({ user_id, status }) =>
        make('li', { 'data-user': user_id }, user_id, make('small', {}, ` ${status ?? ''}`)),
      ),
    );
  },
});

let status = 'here';
async function appear(next: string): Promise<void> {
  if (next === status) return;
  status = next;
  await ps.updatePresence(topic, { status });
}
input.addEventListener('input', () => void appear(input.value ? 'typing' : 'here'));
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = input.value;
  input.value = '';
  await ps.publish(topic, { type: 'chat', data: { text } });
  await appear('here');
});
