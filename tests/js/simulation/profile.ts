/**
 * The parameters that a seed determines: abilities of the server, faults of the network, options.
 */

import { type SessionOptions, sessionOptions } from '../../../js/src/settings/session.js';
import type { Random } from './prng.js';

export const TOPICS: readonly string[] = ['a.1', 'a.2', 'b.1', 'b.2.x'];
export const PATTERNS: readonly string[] = ['a.1', 'a.2', 'b.1', 'a.*', '**', 'b.**', '*.1'];
export const SECRET = 'secret.1';

/** Other users, who join and leave. */
export const PEOPLE: readonly string[] = ['p1', 'p2', 'p3'];

/** The client id of the session. */
export const OWN = 'c';

export const FEATURES: readonly string[] = [
  'ref',
  'ack',
  'seq',
  'idempotency',
  'batch',
  'resume',
  'meta',
];

/** Drawn from the seed in the order of the fields. Probabilities are in thousandths. */
export interface Profile {
  readonly plain: boolean;
  readonly idempotent: boolean;
  readonly batch: boolean;
  readonly retained: number;
  readonly skew: number;
  readonly rate: number;
  readonly tokenLife: number;
  readonly warns: boolean;
  readonly shortTtl: number;
  readonly resets: number;
  readonly cuts: number;
  readonly refusesDial: number;
  readonly blackHole: number;
  readonly freezes: number;
  readonly doubles: number;
  readonly losesLive: number;
  readonly laterAnswers: number;
  readonly inParts: number;
  readonly refusesNow: number;
  readonly limitsRate: number;
  readonly callbackFails: number;
  readonly callbackHangs: number;
  readonly websocketBlocked: boolean;
  readonly tellsResetOfNothing: boolean;
  readonly people: number;
  readonly deniesNow: number;
  readonly acks: boolean;
  readonly options: SessionOptions;
}

/** The profile of a seed. */
export function drawProfile(random: Random): Profile {
  const plain = random.chance(200);
  const rough = random.chance(500);
  return {
    plain,
    idempotent: random.chance(800),
    batch: random.chance(800),
    retained: plain ? 100 : random.pick([3, 10, 40, 100]),
    skew: random.pick(plain ? [0, 5, 40, 2_400] : [0, 0, 5, 40]),
    rate: random.pick([0, 0, 5, 50]),
    tokenLife: random.pick([0, 8_000, 30_000, 90_000]),
    warns: random.chance(600),
    shortTtl: random.pick([0, 0, 100]),
    resets: random.pick([0, 0, 15]),
    cuts: rough ? random.pick([10, 30, 100]) : 10,
    refusesDial: rough ? random.pick([0, 100, 500]) : 0,
    blackHole: rough ? random.pick([0, 100]) : 0,
    freezes: rough ? random.pick([0, 10]) : 0,
    doubles: random.pick([0, 50]),
    losesLive: plain ? 0 : random.pick([0, 20, 100]),
    laterAnswers: random.pick([0, 500]),
    inParts: random.pick([0, 300]),
    refusesNow: random.pick([0, 50]),
    limitsRate: random.pick([0, 0, 100]),
    callbackFails: random.pick([0, 200]),
    callbackHangs: random.pick([0, 50]),
    websocketBlocked: random.chance(100),
    tellsResetOfNothing: random.chance(500),
    people: random.pick([0, 900]),
    deniesNow: random.pick([0, 0, 100]),
    acks: random.chance(900),
    options: sessionOptions({
      client: { name: 'simulation' },
      renewable: true,
      transport: random.pick(['auto', 'auto', 'websocket'] as const),
      heldMessages: random.pick([3, 10_000]),
      sendQueueMessages: random.pick([5, 1_000]),
      sendQueueBytes: random.pick([600, 1_000_000]),
      retryBase: 500,
      retryCap: 4_000,
      upgradeAfter: 20_000,
      suspendAfter: 10_000,
    }),
  };
}
