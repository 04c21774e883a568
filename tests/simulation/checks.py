"""The checks after every run (REC-1 to REC-3, PUB-1, PUB-2, LIFE-7)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hanzoai.pubsub.topics import matches
from tests.simulation.profile import OWN
from tests.traces.effects import Acked, Deliver, Gap, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hanzoai.pubsub.generated.wire import PresenceMember
    from tests.simulation.records import Record
    from tests.simulation.server import Server
    from tests.simulation.shell import Shell
    from tests.traces.events import Publish, Subscribe, UpdatePresence


class Violation(AssertionError):
    """A check has failed."""


def check_stream(
    server: Server, shell: Shell, event: Subscribe, unseen: set[tuple[str, int]]
) -> None:
    """Every published message is delivered, or exactly one gap covers it at its place.

    Args:
        server: Records the published messages.
        shell: Records the events of the subscription.
        event: The subscription.
        unseen: Topic and number of the logs that were lost before this subscription knew them.
    """
    stream = shell.streams[event.sub]
    begun = shell.starts.get(event.sub)
    starts = None if begun is None else begun.counts
    topics = {step.topic if isinstance(step, Gap) else step.message.topic for step in stream}
    if starts is not None:
        topics |= {t for t in server.published if any(matches(p, t) for p in event.topics)}
    for topic in sorted(topics):
        everything = server.published.get(topic, [])
        steps = [
            step
            for step in stream
            if (step.topic if isinstance(step, Gap) else step.message.topic) == topic
        ]
        start = (starts or {}).get(topic, 0)
        since = event.since
        granted = begun is not None and any(matches(p, topic) for p in begun.granted)
        limited = granted and event.history is not None
        if begun is not None and not granted:
            start = len(everything)  # temporarily denied: requested by time
            since = begun.at - server.profile.options.overlap if since is None else since
        if (after := event.after.get(topic)) is not None:
            later = (r.index for r in everything if (r.message.seq or 0) > after)
            start, since = next(later, len(everything)), None
        first = start
        offered: set[str] = set()
        if begun is not None and limited:
            offered = {message.id for message in begun.offered if message.topic == topic}
            first = min((r.index for r in everything if r.message.id in offered), default=start)
            since = None
        if since is not None:
            asked = (r.index for r in everything if r.message.timestamp > since)
            first = min(first, next(asked, first))
        records = [record for record in everything if record.index >= first]
        lost = {log for t, log in unseen if t == topic}
        excused = {r.message.id for r in everything if r.log in lost}
        if since is not None:  # not requested by time, but missed by number
            excused |= {
                r.message.id for r in records if r.index < start and r.message.timestamp <= since
            }
        # Messages that expired by their ttl before the first answer are not missed.
        excused |= {
            r.message.id
            for r in records
            if r.message.ttl is not None and (r.index < start or server.profile.plain)
        }
        if limited:  # of the existing messages, as many as were offered
            excused |= {r.message.id for r in everything[:start]}
            excused -= offered
        if server.profile.plain:  # it cannot report all messages removed before the first answer
            excused |= {r.message.id for r in records if r.gone and r.index < start}
        try:
            if server.profile.plain:
                _walk_plain(records, steps, excused, event.since)
            else:
                _walk(records, steps, excused)
        except Violation as violation:
            raise Violation(f"subscription {event.sub}, topic {topic}: {violation}") from None


def _walk(records: list[Record], steps: Iterable[Deliver | Gap], excused: set[str]) -> None:
    place = {record.message.id: n for n, record in enumerate(records)}
    pending: list[Gap] = []
    at = 0
    for step in steps:
        if isinstance(step, Gap):
            if step.from_ is not None or step.to is not None:
                pending.append(step)  # the others concern messages without numbers
            continue
        if step.message.seq is None:
            continue
        index = place.get(step.message.id, -1)
        if index < 0 and step.message.id in excused:
            continue  # in transit when its log was lost and the subscription started
        if index < at:
            raise Violation(
                f"{step.message.id} was delivered twice, out of order, or without a request"
            )
        _covered(records, at, index, pending, excused)
        pending = []
        at = index + 1
    _covered(records, at, len(records), pending, excused)


def _covered(
    records: list[Record], at: int, index: int, gaps: list[Gap], excused: set[str]
) -> None:
    """Check that the gaps cover exactly the records `at` to `index - 1`."""
    missing = [record for record in records[at:index] if record.message.id not in excused]
    resets = [gap for gap in gaps if gap.reason in ("log_reset", "unproven")]
    if not gaps:
        if missing:
            raise Violation(f"{[r.message.id for r in missing]} are missing without a gap")
        return
    if len(missing) < index - at:
        return  # an excused subscription may have received the gap
    if resets:
        if any(gap.missed is not None for gap in resets):
            raise Violation(f"{resets} must not have a count")
        lost = bool(missing) and all(record.gone for record in missing)
        crossed = at == 0 or index >= len(records) or records[at - 1].log != records[index].log
        if not (lost or crossed):
            raise Violation(f"{resets} lie within one log")
        return
    if not missing:
        if gaps[0].from_ is None and index < len(records) and records[index].gone:
            return  # delivered live, but no longer in the log: more messages may be lost
        raise Violation(f"{gaps} although nothing is missing")
    if any(not record.gone for record in missing):
        raise Violation(f"{gaps} although history has the messages")
    for before, gap in pairwise(gaps):
        if gap.from_ is None or before.to is None or gap.from_ != before.to + 1:
            raise Violation(f"{before} and {gap} are not adjacent")
    first, last = missing[0].message.seq, missing[-1].message.seq
    if gaps[0].from_ is None and len(gaps) == 1 and (gaps[0].to or 0) >= (last or 0):
        return  # requested by time, which need not match the order of the numbers
    if gaps[0].from_ not in (None, first) or gaps[-1].to != last:
        raise Violation(f"{gaps} although {first} to {last} are missing")
    for gap in gaps:
        count = gap.to - gap.from_ + 1 if gap.from_ is not None and gap.to is not None else None
        if gap.missed != count:
            raise Violation(f"{gap} has a wrong count")


def _walk_plain(
    records: list[Record], steps: Iterable[Deliver | Gap], excused: set[str], since: int | None
) -> None:
    """With a plain peer: no duplicates, correct order, no loss without a gap.

    The gap of a live message with a time before `since`, which no replay contains, may be later.
    """
    place = {record.message.id: n for n, record in enumerate(records)}
    seen: set[str] = set()
    early = {r.message.id for r in records if since is not None and r.message.timestamp <= since}
    owed: list[str] = []
    gap = False
    at = 0
    for step in steps:
        if isinstance(step, Gap):
            gap = True
            owed = []
            continue
        if step.message.ttl == 0:
            continue
        if step.message.id in seen:
            raise Violation(f"{step.message.id} was delivered twice")
        seen.add(step.message.id)
        index = place.get(step.message.id, -1)
        if index < at:
            continue  # from before the subscription started: the clock is too coarse
        missing = [r.message.id for r in records[at:index] if r.message.id not in excused]
        if not gap:
            owed += [id for id in missing if id in early]
            if not early.issuperset(missing):
                raise Violation(f"{missing} are missing without a gap")
        gap = False
        at = index + 1
    missing = owed + [r.message.id for r in records[at:] if r.message.id not in excused]
    if missing and not gap:
        raise Violation(f"{missing} are missing at the end without a gap")


def check_publishes(
    server: Server, shell: Shell, publishes: list[Publish], *, ordered: bool
) -> None:
    """Each publish is settled once; the log has acknowledged ones once and rejected ones never."""
    times: dict[str, int] = {}
    places: dict[str, tuple[str, int]] = {}
    for topic, records in server.published.items():
        for record in records:
            id = record.message.id
            times[id] = times.get(id, 0) + 1
            places[id] = (topic, record.index)
    last: dict[tuple[str, str | None, bool], int] = {}
    for event in publishes:
        outcomes = shell.outcomes.get(event.ref, [])
        if len(outcomes) != 1:
            raise Violation(f"publish {event.ref} was settled {len(outcomes)} times")
        outcome = outcomes[0]
        for n, message in enumerate(event.messages):
            assert message.id is not None
            found = times.get(message.id, 0)
            if found > 1:
                raise Violation(f"{message.id} was published {found} times")
            acked = isinstance(outcome, Acked) and outcome.results[n].error is None
            refused = isinstance(outcome, Rejected) or (
                isinstance(outcome, Acked) and outcome.results[n].error is not None
            )
            if acked and found != 1 and server.profile.acks and not server.profile.plain:
                raise Violation(f"{message.id} was acknowledged but is not in the log")
            if refused and found:
                raise Violation(f"{message.id} was rejected but is in the log")
            if found and ordered:
                topic, index = places[message.id]
                # With `latest`, a newer message takes the place of an older one of its key.
                lane = topic, event.key, event.background
                if index < last.get(lane, -1):
                    raise Violation(f"{message.id} was published out of order")
                last[lane] = index


def check_updates(shell: Shell, updates: list[UpdatePresence]) -> None:
    """Each update of presence is settled once."""
    for event in updates:
        outcomes = shell.outcomes.get(event.ref, [])
        if len(outcomes) != 1:
            raise Violation(f"update {event.ref} was settled {len(outcomes)} times")


def check_presence(server: Server, shell: Shell, event: Subscribe) -> None:
    """The subscription knows exactly the members that the server has."""
    shown = shell.presence.get(event.sub, {})
    granted = shell.joined[event.sub][-1].topics if event.sub in shell.joined else ()
    topics = {t for t in server.rooms.occupied() if any(matches(p, t) for p in granted)}
    for topic in sorted(topics | set(shown)):
        mine = {id: _shown(member) for id, member in shown.get(topic, {}).items()}
        theirs = {member.client_id: _shown(member) for member in server.rooms.members(topic)}
        if mine != theirs:
            raise Violation(f"subscription {event.sub} sees on {topic} {mine}, not {theirs}")


def _shown(member: PresenceMember) -> object:
    return (member.name, member.status, member.metadata, member.joined_at)


class OwnPresence:
    """The user's own presence data, by topic of which it is a member."""

    def __init__(self) -> None:
        self._data: dict[str, dict[str, object]] = {}

    def record(self, topic: str, key: str, value: object) -> None:
        """Record data that the server must know at the end."""
        self._data.setdefault(topic, {})[key] = value

    def forget(self, topics: Iterable[str]) -> None:
        """Record that the user is no longer a member."""
        for topic in topics:
            self._data.pop(topic, None)

    def check(self, server: Server) -> None:
        """The server has the latest data of each topic (PRES-3)."""
        for topic, data in self._data.items():
            member = server.rooms.find(topic, OWN)
            if member is None:
                raise Violation(f"no member of {topic}")
            for key, value in data.items():
                known = member.status if key == "status" else (member.metadata or {}).get(key)
                if known != value:
                    raise Violation(f"{key} is {known!r} on {topic}, not {value!r}")


def check_end(shell: Shell) -> None:
    """No timer, task or transport is left."""
    if len(shell.finished) != 1:
        raise Violation(f"the session ended {len(shell.finished)} times")
    if shell.timers:
        raise Violation(f"timers left: {sorted(shell.timers)}")
    if shell.link is not None:
        raise Violation("the transport is still open")
    if shell.session.lifecycle.state not in ("closed", "failed"):
        raise Violation(f"the state at the end is {shell.session.lifecycle.state}")
