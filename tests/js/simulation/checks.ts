/**
 * Checks of the invariants that hold after any run (REC-1 to REC-3, PUB-1, PUB-2, PRES-1, PRES-3,
 * LIFE-7).
 *
 * `tests/simulation/checks.py` checks the same for the session in Python.
 */

import type { PresenceMember } from '../../../js/src/generated/wire.js';
import type { Publish, Subscribe } from '../../../js/src/session/ports.js';
import type { Deliver, Gap } from '../traces/events.js';
import { canonical } from '../traces/mapping.js';
import { OWN } from './profile.js';
import { covers, type Entry } from './records.js';
import type { Server } from './server.js';
import type { Shell } from './shell.js';

/** A violated invariant. */
export class Violation extends Error {}

type Step = Deliver | Gap;

function topicOf(step: Step): string {
  return step.kind === 'gap' ? step.topic : step.message.topic;
}

function ids(records: readonly Entry[]): string {
  return records.map(({ message }) => message.id).join();
}

/**
 * Every published message was delivered, or exactly one gap in its place reports it as missing.
 *
 * @param server Contains what was published.
 * @param shell Contains what the subscription received.
 * @param event The subscription.
 * @param unseen `topic number` of the logs that were lost before this subscription had a position
 *   in them.
 */
export function checkStream(
  server: Server,
  shell: Shell,
  event: Subscribe,
  unseen: ReadonlySet<string>,
): void {
  const { plain } = server.profile;
  const stream = shell.streams.get(event.sub) ?? [];
  const begun = shell.starts.get(event.sub);
  const topics = new Set(stream.map(topicOf));
  if (begun) {
    for (const topic of server.published.keys()) {
      if (covers(event.topics, topic)) topics.add(topic);
    }
  }
  for (const topic of topics) {
    const all = server.published.get(topic) ?? [];
    const steps = stream.filter((step) => topicOf(step) === topic);
    let start = begun?.counts.get(topic) ?? 0;
    let { since } = event;
    const granted = begun !== undefined && covers(begun.granted, topic);
    if (begun && !granted) {
      start = all.length; // denied for now: requested by time later
      since ??= begun.at - server.profile.options.overlap;
    }
    const after = event.after?.get(topic);
    if (after !== undefined) {
      start = all.find(({ message }) => (message.seq ?? 0) > after)?.index ?? all.length;
      since = undefined;
    }
    let first = start;
    const offered = new Set<string>();
    const limited = granted && event.history !== undefined;
    if (limited) {
      for (const message of begun.offered) if (message.topic === topic) offered.add(message.id);
      first = all.find(({ message }) => offered.has(message.id))?.index ?? start;
      since = undefined;
    }
    const from = since;
    if (from !== undefined) {
      first = Math.min(first, all.find(({ message }) => message.timestamp > from)?.index ?? first);
    }
    const records = all.filter(({ index }) => index >= first);
    const excused = new Set<string>();
    const excuse = (entries: readonly Entry[], whether: (entry: Entry) => boolean) => {
      for (const entry of entries) if (whether(entry)) excused.add(entry.message.id);
    };
    excuse(all, ({ log }) => unseen.has(`${topic} ${log}`));
    if (from !== undefined) {
      // A replay by time does not include it, but one by position does.
      excuse(records, ({ index, message }) => index < start && message.timestamp <= from);
    }
    // Messages that expired by their own ttl before the first answer are not missed.
    excuse(records, ({ message, index }) => message.ttl !== undefined && (index < start || plain));
    if (limited) {
      excuse(all, ({ index }) => index < start); // of the earlier messages, only the offered ones
      for (const id of offered) excused.delete(id);
    }
    // A plain peer cannot always report messages that it dropped before the first answer.
    if (plain) excuse(records, ({ gone, index }) => gone && index < start);
    try {
      if (plain) walkPlain(records, steps, excused, event.since);
      else walk(records, steps, excused);
    } catch (error) {
      throw new Violation(`subscription ${event.sub}, topic ${topic}: ${String(error)}`);
    }
  }
}

function walk(
  records: readonly Entry[],
  steps: readonly Step[],
  excused: ReadonlySet<string>,
): void {
  const place = new Map(records.map(({ message }, n) => [message.id, n]));
  let pending: Gap[] = [];
  let at = 0;
  for (const step of steps) {
    if (step.kind === 'gap') {
      // Gaps without positions are about messages without numbers.
      if (step.from !== undefined || step.to !== undefined) pending.push(step);
      continue;
    }
    const { id, seq } = step.message;
    if (seq === undefined) continue;
    const index = place.get(id) ?? -1;
    // It was in flight when its log was lost and the subscription started.
    if (index < 0 && excused.has(id)) continue;
    if (index < at)
      throw new Violation(`${id} was delivered twice, out of order, or without a request`);
    covered(records, at, index, pending, excused);
    pending = [];
    at = index + 1;
  }
  covered(records, at, records.length, pending, excused);
}

/** Check that the gaps report exactly the records `at` to `index - 1` as missing. */
function covered(
  records: readonly Entry[],
  at: number,
  index: number,
  gaps: readonly Gap[],
  excused: ReadonlySet<string>,
): void {
  const missing = records.slice(at, index).filter(({ message }) => !excused.has(message.id));
  const reported = canonical(gaps);
  if (!gaps.length) {
    if (missing.length) throw new Violation(`${ids(missing)} are missing without a gap`);
    return;
  }
  if (missing.length < index - at) return; // the gap may include excused messages
  const resets = gaps.filter(({ reason }) => reason === 'log_reset' || reason === 'unproven');
  if (resets.length) {
    if (resets.some(({ missed }) => missed !== undefined)) {
      throw new Violation(`${reported} must not have a count`);
    }
    const lost = missing.length > 0 && missing.every(({ gone }) => gone);
    const log = records[at - 1]?.log;
    const crossed = at === 0 || index >= records.length || log !== records[index]?.log;
    if (!lost && !crossed) throw new Violation(`${reported} lie within one log`);
    return;
  }
  if (!missing.length) {
    // It arrived live and the log no longer has it, so it is unknown whether more were lost.
    if (gaps[0]?.from === undefined && records[index]?.gone) return;
    throw new Violation(`${reported} although nothing is missing`);
  }
  if (missing.some(({ gone }) => !gone))
    throw new Violation(`${reported} although history has the messages`);
  for (const [n, gap] of gaps.entries()) {
    const before = gaps[n - 1];
    if (before && (before.to === undefined || gap.from !== before.to + 1)) {
      throw new Violation(`${reported} are not adjacent`);
    }
  }
  const first = missing[0]?.message.seq;
  const last = missing.at(-1)?.message.seq;
  const [{ from, to } = {}] = gaps;
  // The replay was requested by time, and messages need not be in the order of their numbers.
  if (from === undefined && gaps.length === 1 && (to ?? 0) >= (last ?? 0)) return;
  if ((from !== undefined && from !== first) || gaps.at(-1)?.to !== last) {
    throw new Violation(`${reported} although ${first} to ${last} are missing`);
  }
  for (const gap of gaps) {
    const known = gap.from !== undefined && gap.to !== undefined;
    const count = known ? Number(gap.to) - Number(gap.from) + 1 : undefined;
    if (gap.missed !== count) throw new Violation(`${reported} has a wrong count`);
  }
}

/**
 * For a plain peer: no message arrives twice or out of order, and none is lost without a gap.
 *
 * The gap of a live message with a time before `since` may be later: a replay may not contain it.
 */
function walkPlain(
  records: readonly Entry[],
  steps: readonly Step[],
  excused: ReadonlySet<string>,
  since = -1,
): void {
  const place = new Map(records.map(({ message }, n) => [message.id, n]));
  const seen = new Set<string>();
  let owed: readonly Entry[] = [];
  let gap = false;
  let at = 0;
  const proceed = (end: number) => {
    const missing = records.slice(at, end).filter(({ message }) => !excused.has(message.id));
    if (gap) return;
    const late = missing.filter(({ message }) => message.timestamp > since);
    const lost = end < records.length ? late : [...owed, ...missing];
    if (lost.length) throw new Violation(`${ids(lost)} are missing without a gap`);
    owed = [...owed, ...missing];
  };
  for (const step of steps) {
    if (step.kind === 'gap') {
      gap = true;
      owed = [];
      continue;
    }
    const { id, ttl } = step.message;
    if (ttl === 0) continue;
    if (seen.has(id)) throw new Violation(`${id} was delivered twice`);
    seen.add(id);
    const index = place.get(id) ?? -1;
    if (index < at) continue; // from before the subscription, which a plain peer cannot know
    proceed(index);
    gap = false;
    at = index + 1;
  }
  proceed(records.length);
}

/** Each of some updates of presence, whose `ref` begins at `first`, is settled once. */
export function checkUpdates(shell: Shell, first: number, count: number): void {
  for (let ref = first; ref < first + count; ref += 1) {
    const outcomes = shell.outcomes.get(ref) ?? [];
    if (outcomes.length !== 1) {
      throw new Violation(`update ${ref} was settled ${outcomes.length} times`);
    }
  }
}

/** Each publish is settled once. An acknowledged one is in the log once, a rejected one is not. */
export function checkPublishes(
  server: Server,
  shell: Shell,
  publishes: readonly Publish[],
  ordered: boolean,
): void {
  const { acks, plain } = server.profile;
  const times = new Map<string, number>();
  const places = new Map<string, Entry>();
  for (const entries of server.published.values()) {
    for (const entry of entries) {
      const { id } = entry.message;
      times.set(id, (times.get(id) ?? 0) + 1);
      places.set(id, entry);
    }
  }
  const last = new Map<string, number>();
  for (const { ref, messages, background, key = '' } of publishes) {
    const outcomes = shell.outcomes.get(ref) ?? [];
    const [outcome] = outcomes;
    if (!outcome || outcomes.length > 1) {
      throw new Violation(`publish ${ref} was settled ${outcomes.length} times`);
    }
    for (const [n, { id = '' }] of messages.entries()) {
      const found = times.get(id) ?? 0;
      if (found > 1) throw new Violation(`${id} was published ${found} times`);
      const result = outcome.kind === 'acked' ? outcome.results[n] : undefined;
      if (outcome.kind === 'acked' && !result) throw new Violation(`${id} has no result`);
      const acked = result !== undefined && !result.error;
      if (acked && found !== 1 && acks && !plain) {
        throw new Violation(`${id} was acknowledged but is not in the log`);
      }
      if ((outcome.kind === 'rejected' || result?.error) && found) {
        throw new Violation(`${id} was rejected but is in the log`);
      }
      const place = places.get(id);
      if (place && ordered) {
        // With `latest`, a newer message takes the place of an older one of its key.
        const lane = `${place.message.topic} ${key} ${!!background}`;
        if (place.index < (last.get(lane) ?? -1)) {
          throw new Violation(`${id} was published out of order`);
        }
        last.set(lane, place.index);
      }
    }
  }
}

/** The members that the subscription received are exactly those of the server. */
export function checkPresence(server: Server, shell: Shell, { sub }: Subscribe): void {
  const reported =
    shell.presence.get(sub) ?? new Map<string, ReadonlyMap<string, PresenceMember>>();
  const granted = shell.joined.get(sub)?.at(-1)?.topics ?? [];
  const topics = server.rooms.occupied().filter((topic) => covers(granted, topic));
  for (const topic of new Set([...topics, ...reported.keys()])) {
    const mine = canonical(shown(reported.get(topic)?.values() ?? []));
    const theirs = canonical(shown(server.rooms.members(topic)));
    if (mine !== theirs) {
      throw new Violation(`subscription ${sub} sees on ${topic} ${mine}, not ${theirs}`);
    }
  }
}

function shown(members: Iterable<PresenceMember>): unknown {
  return Object.fromEntries(
    [...members].map((member) => [member.client_id, { ...member, last_seen: 0 }]),
  );
}

/** The presence data that the user has set, by topic of which it is a member. */
export class Said {
  private readonly _words = new Map<string, Map<string, string | null>>();

  /** Record a value that the server must have in the end; null deletes it. */
  say(topic: string, key: string, value: string | null): void {
    const words = this._words.get(topic) ?? new Map<string, string | null>();
    this._words.set(topic, words.set(key, value));
  }

  /** Drop the topics of which the user is no longer a member. */
  forget(topics: readonly string[]): void {
    for (const topic of topics) this._words.delete(topic);
  }

  /** The server has the last value of each key (PRES-3). */
  check(server: Server): void {
    for (const [topic, words] of this._words) {
      const member = server.rooms.find(topic, OWN);
      if (!member) throw new Violation(`no member of ${topic}`);
      for (const [key, value] of words) {
        const known = (key === 'status' ? member.status : member.metadata?.[key]) ?? null;
        if (known !== value) {
          throw new Violation(`${key} is ${String(known)} on ${topic}, not ${value}`);
        }
      }
    }
  }
}

/** No timer, transport or session is left. */
export function checkEnd(shell: Shell): void {
  const { finished, timers, link, session } = shell;
  if (finished.length !== 1) throw new Violation(`the session ended ${finished.length} times`);
  if (timers.size) throw new Violation(`timers left: ${[...timers.keys()].join()}`);
  if (link) throw new Violation('the transport is still open');
  if (session.lifecycle.state !== 'closed')
    throw new Violation(`the state at the end is ${session.lifecycle.state}`);
}
