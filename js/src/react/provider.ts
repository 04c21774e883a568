/** `PubSubProvider`: the client of the components inside. */

import {
  type Context,
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useContext,
  useEffect,
  useMemo,
  useReducer,
  useState,
} from 'react';

import { DEVELOPMENT } from '../build.js';
import { PubSub } from '../client.js';
import { UsageError } from '../errors.js';
import type { PubSubOptions } from '../settings/options.js';
import type { AnyTopics } from '../values.js';
import { LINGER } from './topic_store.js';

/** Properties of `PubSubProvider`: a client, or the options of one. */
export type ProviderProps<Topics extends object = AnyTopics> = {
  readonly children?: ReactNode;
} & (
  | {
      /** A client that the program creates and closes. */
      readonly client?: PubSub<Topics> | undefined;
      readonly options?: undefined;
    }
  | {
      readonly client?: undefined;
      /**
       * Options of a client that the provider creates, and closes after it unmounts. The options of
       * the first rendering apply. Define them outside the component to keep the client when the
       * component mounts again: providers with the same object share a client. For another user,
       * change the `key` and pass another object.
       */
      readonly options?: PubSubOptions | undefined;
    }
);

/** A client that providers created, and the number of providers that use it. */
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

/** Keep the client of these options. The returned function closes it after a while. */
function hold(options: PubSubOptions): () => void {
  const lease = leaseOf(options);
  lease.holders += 1;
  clearTimeout(lease.ending);
  return () => {
    lease.holders -= 1;
    if (lease.holders) return;
    lease.ending = setTimeout(() => {
      if (leases.get(options) === lease) leases.delete(options);
      void lease.client.close();
    }, LINGER);
  };
}

/** @internal The context of the components inside a provider. */
export interface Given {
  readonly client: PubSub;
  /** Replace a client that has ended, if the provider creates clients. */
  readonly renew: () => void;
}

const Place: Context<Given | undefined> = createContext<Given | undefined>(undefined);

/** @internal Whether a client has ended. */
export function hasEnded({ state }: PubSub): boolean {
  return state === 'failed' || state === 'closed';
}

/**
 * Provide a client for the components inside.
 *
 * @throws UsageError It has both a client and options; only in the development build.
 */
export function PubSubProvider({ client, options, children }: ProviderProps): ReactElement {
  if (DEVELOPMENT && client && options)
    throw new UsageError('PubSubProvider has both `client` and `options`.', {
      remedy: 'Pass `options` to the constructor of the client, or leave out `client`.',
    });
  const [own] = useState(options ?? {});
  const [, again] = useReducer((count: number) => count + 1, 0);
  const value = client ?? leaseOf(own).client;
  useEffect(() => {
    if (client) return undefined;
    const release = hold(own);
    // The client was closed while the component was hidden.
    if (leaseOf(own).client !== value) again();
    return release;
  }, [client, own, value]);
  const given = useMemo(() => {
    const renew = (): void => {
      if (client) return;
      if (hasEnded(leaseOf(own).client)) leases.delete(own);
      again();
    };
    return { client: value, renew };
  }, [client, own, value]);
  return createElement(Place.Provider, { value: given }, children);
}

/**
 * The client of the nearest provider.
 *
 * @throws UsageError There is no provider.
 */
export function usePubSub(): PubSub {
  return usePlace().client;
}

/** @internal The context of the nearest provider. */
export function usePlace(): Given {
  const place = useContext(Place);
  if (place) return place;
  throw new UsageError('This component is not in a PubSubProvider.', {
    remedy:
      'Render it inside <PubSubProvider>. If it is inside one, the page has two copies of the package: `npm ls @hanzoai/pubsub` lists them.',
  });
}
