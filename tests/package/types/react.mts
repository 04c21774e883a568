/** Components of an application, compiled and not run. */

import type { OnlyTopics, PubSub } from '@hanzoai/pubsub';
import { createHooks, PubSubProvider, useConnectionState, useTopic } from '@hanzoai/pubsub/react';
import { createElement, type ReactElement } from 'react';

const typed = createHooks<{ 'chat.session.abc': { readonly text: string } }>();

const strict = createHooks<OnlyTopics<{ 'chat.session.abc': { readonly text: string } }>>();

export function useStrict(): readonly string[] {
  // @ts-expect-error There is no such topic.
  strict.useTopic('chat.sesion.abc');
  strict.useTopic(null);
  return strict.useTopic(['chat.session.abc']).messages.map(({ data }) => data.text);
}

export function Chat(): ReactElement {
  const state = useConnectionState();
  // @ts-expect-error There is no such state.
  if (state === 'elsewhere') return createElement('p');
  const { messages } = typed.useTopic('chat.session.abc');
  const texts: string[] = messages.map(({ data }) => data.text);
  // @ts-expect-error The payload of this topic has no number.
  messages.map(({ data }) => data.number);
  const free = useTopic('other.topic').messages.map(({ data }) => data.anything);
  return createElement('p', {}, texts.length + free.length);
}

export const application: ReactElement = createElement(
  PubSubProvider,
  { options: { url: 'wss://pubsub.example.com/ws', token: 'ey...' } },
  createElement(Chat),
);

export function around(client: PubSub<{ 'chat.session.abc': string }>): ReactElement {
  return createElement(PubSubProvider, { client }, createElement(Chat));
}

// @ts-expect-error A provider has no such property.
createElement(PubSubProvider, { clients: [] });
