/** The state of the connection over time. */

import type { PubSub, StateChange, StateName } from '@hanzoai/pubsub';

import { onEnd, Signal } from './reactive.js';

const LOG_MAX = 40;

/** A change of state with its time. */
export interface Step extends StateChange {
  readonly at: number;
}

/** Records the states of one client. */
export class Connection {
  readonly state: Signal<StateName>;
  readonly last: Signal<Step | undefined> = new Signal<Step | undefined>(undefined);
  /** Newest first. */
  readonly log: Signal<readonly Step[]> = new Signal<readonly Step[]>([]);

  constructor(ps: PubSub) {
    this.state = new Signal(ps.state);
    onEnd(
      ps.on('state', (change) => {
        const step: Step = { ...change, at: Date.now() };
        this.last.value = step;
        this.log.value = [step, ...this.log.peek()].slice(0, LOG_MAX);
        this.state.value = change.to;
      }),
    );
  }
}

/** The displayed name of a state. */
export const STATE_NAMES: Readonly<Record<StateName, string>> = {
  initialized: 'Not connected',
  connecting: 'Connecting',
  authenticating: 'Signing in',
  connected: 'Connected',
  reconnecting: 'Reconnecting',
  suspended: 'Offline',
  closing: 'Closing',
  closed: 'Closed',
  failed: 'Stopped',
};

/** The colour of a state. */
export function tone(state: StateName): 'good' | 'wait' | 'bad' {
  if (state === 'connected') return 'good';
  return state === 'failed' || state === 'closed' || state === 'suspended' ? 'bad' : 'wait';
}

/** The current state in one line: the reason, the attempt, and the time until the next one. */
export function explain(step: Step | undefined, now: number): string {
  if (!step || step.to === 'connected') return '';
  const parts: string[] = [];
  if (step.reason) parts.push(step.reason.replace(/[.\s]+$/, ''));
  if (step.retryIn !== undefined) {
    const seconds = Math.max(0, Math.ceil((step.at + step.retryIn - now) / 1000));
    parts.push(`attempt ${step.attempt + 1} ${seconds ? `in ${seconds} s` : 'now'}`);
  } else if (step.attempt && step.to !== 'failed') parts.push(`attempt ${step.attempt}`);
  return parts.join(' · ');
}
