/** `PubSubProvider`: the client of the components inside. */

import {
  type Context,
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useContext,
  useEffect,
  useReducer,
  useState,
} from 'react';

import { PubSub } from '../client.js';
import { UsageError } from '../errors.js';
import type { PubSubOptions } from '../settings/options.js';
import type { AnyTopics } from '../values.js';
import { LINGER } from './topic_store.js';

/** What `PubSubProvider` takes: a client, or the options of one. */
export interface ProviderProps<Topics extends object = AnyTopics> {
  /** A client that the program made and closes. */
  readonly client?: PubSub<Topics> | undefined;
  /**
   * Options of a client that the provider makes, and closes after it has gone. Those of the first
   * rendering count; an object that stands outside the component keeps the client when it is
   * mounted anew.
   */
  readonly options?: PubSubOptions | undefined;
  readonly children?: ReactNode;
}

/** A client that providers made, and how many of them hold it. */
interface Lease {
  readonly client: PubSub;
  holders: number;
  ending?: ReturnType<typeof setTimeout>;
}

const leases = new WeakMap<PubSubOptions, Lease>();

function leaseOf(options: PubSubOptions): Lease {
  const lease = leases.get(options) ?? { client: new PubSub(options), holders: 0 };
  leases.set(options, lease);
  return lease;
}

/** Keep the client of these options; what is returned lets it be closed after a while. */
function hold(options: PubSubOptions): () => void {
  const lease = leaseOf(options);
  lease.holders += 1;
  clearTimeout(lease.ending);
  return () => {
    lease.holders -= 1;
    if (lease.holders) return;
    lease.ending = setTimeout(() => {
      leases.delete(options);
      void lease.client.close();
    }, LINGER);
  };
}

const Client: Context<PubSub | undefined> = createContext<PubSub | undefined>(undefined);

/** Give a client to the components inside. */
export function PubSubProvider({ client, options, children }: ProviderProps): ReactElement {
  const [own] = useState(options ?? {});
  const [, again] = useReducer((count: number) => count + 1, 0);
  const value = client ?? leaseOf(own).client;
  useEffect(() => {
    if (client) return undefined;
    const release = hold(own);
    // Hidden for so long that its client was closed.
    if (leaseOf(own).client !== value) again();
    return release;
  }, [client, own, value]);
  return createElement(Client.Provider, { value }, children);
}

/**
 * The client of the nearest provider.
 *
 * @throws UsageError There is no provider.
 */
export function usePubSub(): PubSub {
  const client = useContext(Client);
  if (client) return client;
  throw new UsageError('This component is in no PubSubProvider.', {
    remedy: 'Render it inside of <PubSubProvider>.',
  });
}
