"""Checks the history of a run against the promises of docs/protocol.md, and nothing else.

Each rule is a function of the history. `EVENTUAL` names the rules that may still become true while
a run settles; a violation of any other rule is final.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.chaos.records import Gap, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.chaos.records import History, Loss, Publication, Subscription

EVENTUAL: Final = frozenset({"lost", "crossed", "connected", "presence", "served"})
UNASKED_MARGIN: Final = 1.0
"""Seconds. A replay at the start of a subscription goes back by up to a millisecond of the server's
clock, and the acknowledgement of a publish may have been in transit."""
READERS_ARE_FAST: Final = frozenset({"slow_consumer", "unproven"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        rule: Name of the rule.
        who: The affected client, subscription or node.
        topic: The affected topic, or an empty string.
        text: The observation and the promise.
    """

    rule: str
    who: str
    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.who} {self.topic}: {self.text}"


def check(history: History) -> list[Violation]:
    """Return every promise that this history breaks."""
    return [violation for rule in RULES for violation in rule(history)]


def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern matches a topic: `*` is one segment, `**` one or more, anywhere."""
    return _match(pattern.split("."), topic.split("."))


def _match(pattern: Sequence[str], topic: Sequence[str]) -> bool:
    if not pattern:
        return not topic
    head, *rest = pattern
    if head == "**":
        return any(_match(rest, topic[n:]) for n in range(1, len(topic) + 1))
    return bool(topic) and head in {"*", topic[0]} and _match(rest, topic[1:])


def takes(subscription: Subscription, topic: str) -> bool:
    """Whether a subscription requests a topic and its user may read it."""
    return any(matches(one, topic) for one in subscription.patterns) and _readable(
        subscription, topic
    )


def _readable(subscription: Subscription, topic: str) -> bool:
    return any(matches(one, topic) for one in subscription.readable)


# ---------------------------------------------------------------- delivered messages


def published(history: History) -> Iterator[Violation]:
    """A message is delivered as it was published: topic, payload and sender."""
    for subscription, message in _messages(history):
        source = history.publications.get(message.id)
        who = subscription.client
        if source is None:
            yield Violation("published", who, message.topic, f"{message.id} was never published")
            continue
        for name, sent, got in (
            ("topic", source.topic, message.topic),
            ("data", source.data, message.data),
            ("sender", source.user, message.sender),
        ):
            if sent != got:
                text = f"{message.id} has {name} {got!r} in place of {sent!r}"
                yield Violation("published", who, message.topic, text)


def asked(history: History) -> Iterator[Violation]:
    """A subscription receives only topics that it requests, and past messages only on request."""
    for subscription in history.subscriptions:
        for entry in subscription.received:
            if not any(matches(one, entry.topic) for one in subscription.patterns):
                text = f"{_named(entry)} is of a topic that was not asked for"
                yield Violation("asked", subscription.client, entry.topic, text)
            if subscription.past:
                continue
            source = history.publications.get(entry.id) if isinstance(entry, Message) else None
            ended = source.ended if source and source.outcome == "acknowledged" else None
            if source and ended is not None and ended < subscription.asked - UNASKED_MARGIN:
                # Only positions show which message is older, and they are lost with the store's
                # data. Ids are lost, too, so a later attempt with the same id gets a new number.
                again = isinstance(entry, Message) and entry.seq != source.seq
                if any(
                    loss.begun <= entry.at
                    and (subscription.asked <= loss.ended or (again and source.begun <= loss.ended))
                    for loss in history.losses
                ):
                    continue
                text = (
                    f"{_named(entry)} was acknowledged at {ended:.2f} s,"
                    f" the subscription was asked for at {subscription.asked:.2f} s"
                )
                yield Violation("asked", subscription.client, entry.topic, text)


def ordered(history: History) -> Iterator[Violation]:
    """The messages of a topic arrive in the order of their positions, each position once."""
    for subscription in history.subscriptions:
        last: dict[str, Message] = {}
        for entry in subscription.received:
            if not isinstance(entry, Message) or entry.seq is None:
                continue
            before = last.get(entry.topic)
            if before is not None and before.seq is not None and entry.seq <= before.seq:
                text = f"{entry.id} at {entry.seq} came behind {before.id} at {before.seq}"
                yield Violation("ordered", subscription.client, entry.topic, text)
            else:
                last[entry.topic] = entry


def once(history: History) -> Iterator[Violation]:
    """A message arrives once; its id may be forgotten only if the store loses its data."""
    for subscription in history.subscriptions:
        first: dict[str, Message] = {}
        for entry in subscription.received:
            if not isinstance(entry, Message):
                continue
            before = first.setdefault(entry.id, entry)
            if before is entry:
                continue
            source = history.publications.get(entry.id)
            begun = source.begun if source else before.at
            if not any(begun <= loss.ended and loss.begun <= entry.at for loss in history.losses):
                text = f"{entry.id} came at {before.at:.2f} s and at {entry.at:.2f} s"
                yield Violation("once", subscription.client, entry.topic, text)


def numbered(history: History) -> Iterator[Violation]:
    """A position belongs to the same message for every subscriber."""
    ids: dict[tuple[str, int], str] = {}
    seen = [
        *((one.topic, one.seq, one.id, one.by) for one in history.publications.values()),
        *((one.topic, one.seq, one.id, by.client) for by, one in _messages(history)),
    ]
    for topic, seq, id, who in seen:
        if seq is None:
            continue
        known = ids.setdefault((topic, seq), id)
        if known != id:
            yield Violation("numbered", who, topic, f"{known} and {id} are both at {seq}")


def in_turn(history: History) -> Iterator[Violation]:
    """The acknowledged publishes of a client to a topic are numbered in the order of its calls."""
    lanes: defaultdict[tuple[str, str], list[Publication]] = defaultdict(list)
    for one in history.publications.values():
        # Publishes after the faults go to all nodes at the same time.
        if one.outcome == "acknowledged" and one.seq is not None and not one.final:
            lanes[one.by, one.topic].append(one)
    for (by, topic), lane in lanes.items():
        lane.sort(key=lambda one: one.order)
        for before, after in itertools.pairwise(lane):
            assert before.seq is not None
            assert after.seq is not None
            # A repeat is a new message if the store has lost the first attempt meanwhile.
            repeated = any(
                before.begun <= loss.ended and (before.ended is None or loss.begun <= before.ended)
                for loss in history.losses
            )
            if after.seq <= before.seq and not repeated:
                text = (
                    f"{after.id} was called after {before.id},"
                    f" and is at {after.seq}, not behind {before.seq}"
                )
                yield Violation("in_turn", by, topic, text)


# ---------------------------------------------------------------- missing messages


def lost(history: History) -> Iterator[Violation]:
    """Every subscriber gets each message that was acknowledged or delivered to anyone, or a gap.

    A subscriber that has left gets those before the last message that it received.
    """
    positions = _positions(history)
    topics = {one.topic for one in history.publications.values()}
    for subscription in history.subscriptions:
        if subscription.began is None:
            continue
        taken = {topic for topic in topics if takes(subscription, topic)}
        received: defaultdict[str, list[Message | Gap]] = defaultdict(list)
        for entry in subscription.received:
            received[entry.topic].append(entry)
        got = {entry.id for entry in subscription.received if isinstance(entry, Message)}
        for one in history.publications.values():
            if one.id in got or one.id not in positions or one.topic not in taken:
                continue
            entries, seq = received[one.topic], positions[one.id]
            if subscription.left is not None and not _follows(entries, seq):
                continue
            # A subscriber that has received a message must get all later ones.
            if one.begun <= subscription.began and not _precedes(entries, seq):
                continue
            if not _covered(entries, one, seq) and not _unknown(history, subscription, one, seq):
                yield Violation("lost", subscription.client, one.topic, _loss(one, seq, entries))


def crossed(history: History) -> Iterator[Violation]:
    """A subscriber gets each message that another node of an undivided mesh has acknowledged.

    The node of the subscriber gives it a position, so `lost` does not notice if none arrives there.
    """
    if history.node is None or history.losses:
        return
    positions = _positions(history)
    for subscription in history.subscriptions:
        if subscription.began is None or subscription.left is not None:
            continue
        # Where history was trimmed, nobody may have received a message.
        holes = {entry.topic for entry in subscription.received if isinstance(entry, Gap)}
        for one in history.publications.values():
            if (
                one.node != history.node
                and one.outcome == "acknowledged"
                and one.begun > subscription.began
                and one.id not in positions
                and one.topic not in holes
                and takes(subscription, one.topic)
            ):
                text = f"{one.id} of node{one.node} (begun {one.begun:.2f} s) did not come"
                yield Violation("crossed", subscription.client, one.topic, text)


def _positions(history: History) -> dict[str, int]:
    """Return the position of each message that was acknowledged or delivered."""
    found = {
        one.id: one.seq
        for one in history.publications.values()
        if one.outcome == "acknowledged" and one.seq is not None
    }
    for _, message in _messages(history):
        if message.seq is not None:
            found.setdefault(message.id, message.seq)
    return found


def _precedes(entries: Sequence[Message | Gap], seq: int) -> bool:
    return any(isinstance(e, Message) and e.seq is not None and e.seq < seq for e in entries)


def _follows(entries: Sequence[Message | Gap], seq: int) -> bool:
    return any(isinstance(e, Message) and e.seq is not None and e.seq > seq for e in entries)


def _covered(entries: Sequence[Message | Gap], one: Publication, seq: int) -> bool:
    before: int | None = None
    for place, entry in enumerate(entries):
        if isinstance(entry, Message):
            before = entry.seq
            continue
        after = next(
            (later.seq for later in entries[place + 1 :] if isinstance(later, Message)), None
        )
        first = entry.first if entry.first is not None else -1 if before is None else before + 1
        if seq < first:
            continue
        if entry.last is not None:
            if seq <= entry.last:
                return True
        elif seq < after if after is not None else one.begun < entry.at:
            return True
    return False


def _unknown(history: History, subscription: Subscription, one: Publication, seq: int) -> bool:
    """Whether a pattern could not know this topic: it was created and then lost with the store."""
    if one.topic in subscription.patterns:
        return False
    known = any(
        other.topic == one.topic
        and other.ended is not None
        and other.ended < subscription.asked
        and other.outcome == "acknowledged"
        for other in history.publications.values()
    ) or _precedes([entry for entry in subscription.received if entry.topic == one.topic], seq)
    return not known and any(one.begun <= loss.ended for loss in history.losses)


def _loss(one: Publication, seq: int, entries: Sequence[Message | Gap]) -> str:
    ended = f"{one.ended:.2f} s" if one.ended is not None else "never"
    before = [e for e in entries if isinstance(e, Message) and e.seq is not None and e.seq < seq]
    after = [e for e in entries if isinstance(e, Message) and e.seq is not None and e.seq > seq]
    return (
        f"{one.id} at {seq} (begun {one.begun:.2f} s, {one.outcome} {ended}) did not come;"
        f" before it {_named(before[-1]) if before else 'nothing'},"
        f" behind it {_named(after[0]) if after else 'nothing'},"
        f" gaps {[_named(e) for e in entries if isinstance(e, Gap)]}"
    )


def proven(history: History) -> Iterator[Violation]:
    """A gap covers only unproven messages, is at the right place, and has the right count."""
    positions = _positions(history)
    topics: defaultdict[str, list[Publication]] = defaultdict(list)
    for one in history.publications.values():
        topics[one.topic].append(one)
    for subscription in history.subscriptions:
        resets: Counter[str] = Counter()
        for place, gap in enumerate(subscription.received):
            if not isinstance(gap, Gap):
                continue
            # A client reports a restart once, and a hole after later messages as the same loss.
            before = [each for each in subscription.received[:place] if each.topic == gap.topic]
            known = resets[gap.topic] > 0 and gap.last is not None
            same = known and isinstance(before[-1], Message)
            resets[gap.topic] += gap.reason == "log_reset" and not same
            for text in (
                _reason(gap, history, resets[gap.topic], topics[gap.topic]),
                _extent(gap, subscription.received, place),
                _size(gap, positions, topics[gap.topic]),
            ):
                if text:
                    yield Violation(
                        "proven", subscription.client, gap.topic, f"{_named(gap)}: {text}"
                    )


def _reason(gap: Gap, history: History, resets: int, sent: Sequence[Publication]) -> str:
    if gap.reason in READERS_ARE_FAST:
        return "no reader of a run is slow, and every server of a run numbers"
    if gap.reason == "log_reset":
        losses = sum(loss.begun <= gap.at for loss in history.losses)
        return f"gap {resets} of a store that lost its data {losses} times" * (resets > losses)
    so_far = sum(one.begun <= gap.at for one in sent)
    if so_far <= history.retained and not _any(history.losses, gap.at):
        return f"{so_far} messages were published, {history.retained} are retained"
    return ""


def _any(losses: Iterable[Loss], until: float) -> bool:
    return any(loss.begun <= until for loss in losses)


def _extent(gap: Gap, received: Sequence[Message | Gap], place: int) -> str:
    if gap.first is not None and gap.last is not None and gap.last < gap.first:
        return "it ends before it begins"
    for entry in received:
        if (
            isinstance(entry, Message)
            and entry.topic == gap.topic
            and entry.seq is not None
            and gap.first is not None
            and gap.last is not None
            and gap.first <= entry.seq <= gap.last
        ):
            return f"it covers {entry.id} at {entry.seq}, which came"
    for entry in received[place + 1 :]:
        if isinstance(entry, Message) and entry.topic == gap.topic and entry.seq is not None:
            if gap.first is not None and entry.seq < gap.first:
                return f"{entry.id} at {entry.seq} precedes it and came behind it"
            break
    return ""


def _size(gap: Gap, positions: dict[str, int], sent: Sequence[Publication]) -> str:
    if gap.missed is None:
        return ""
    if gap.missed > len(sent):
        return f"{len(sent)} messages were published in all"
    if gap.first is None or gap.last is None:
        return ""
    inside = sum(one.id in positions and gap.first <= positions[one.id] <= gap.last for one in sent)
    return f"{inside} messages are missing there" * (gap.missed < inside)


# ---------------------------------------------------------------- permissions


def allowed(history: History) -> Iterator[Violation]:
    """No client receives from or publishes to a topic that the access rules deny."""
    for subscription in history.subscriptions:
        for entry in subscription.received:
            if not _readable(subscription, entry.topic):
                text = f"{_named(entry)} was received without permission"
                yield Violation("allowed", subscription.client, entry.topic, text)
        for topic, members in subscription.members.items():
            if not _readable(subscription, topic):
                text = f"{members} were shown as members without permission"
                yield Violation("allowed", subscription.client, topic, text)
    for one in history.publications.values():
        if not one.allowed and one.outcome == "acknowledged":
            text = f"{one.id} was accepted without permission"
            yield Violation("allowed", one.by, one.topic, text)
    for subscription, message in _messages(history):
        source = history.publications.get(message.id)
        if source and not source.allowed:
            text = f"{message.id} was published without permission"
            yield Violation("allowed", subscription.client, message.topic, text)


# ---------------------------------------------------------------- final state


def connected(history: History) -> Iterator[Violation]:
    """After the faults have stopped, every client is connected with its preferred transport."""
    for client in history.clients:
        if client.failure is not None:
            yield Violation("failed", client.name, "", f"gave up for good: {client.failure}")
        elif (client.state, client.found) != ("connected", client.transport):
            text = f"is {client.state} by {client.found}, not connected by {client.transport}"
            yield Violation("connected", client.name, "", text)
    for subscription in history.subscriptions:
        if subscription.ended is not None:
            text = f"the subscription ended: {subscription.ended}"
            yield Violation("failed", subscription.client, "", text)
        elif subscription.began is None:
            text = f"{', '.join(subscription.patterns)} was never acknowledged"
            yield Violation("connected", subscription.client, "", text)


def present(history: History) -> Iterator[Violation]:
    """The members of a topic are the connected clients that are subscribed to it by name."""
    for (node, topic), found in history.present.items():
        wanted = history.members.get(topic, [])
        if sorted(found) != sorted(wanted):
            yield Violation("presence", node, topic, _differ(found, wanted))
    for subscription in history.subscriptions:
        for topic, found in subscription.members.items():
            wanted = history.members.get(topic, [])
            if sorted(found) != sorted(wanted):
                yield Violation("presence", subscription.client, topic, _differ(found, wanted))


def _differ(found: Sequence[str], wanted: Sequence[str]) -> str:
    more, fewer = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
    return f"too many: {sorted(more.elements())}, missing: {sorted(fewer.elements())}"


def served(history: History) -> Iterator[Violation]:
    """After the faults have stopped, the server accepts publishes."""
    for one in history.publications.values():
        if one.final and one.outcome != "acknowledged":
            text = f"{one.id} after the faults: {one.outcome} {one.code or ''}".rstrip()
            yield Violation("served", one.by, one.topic, text)


# ---------------------------------------------------------------- shared


def _messages(history: History) -> Iterator[tuple[Subscription, Message]]:
    for subscription in history.subscriptions:
        for entry in subscription.received:
            if isinstance(entry, Message):
                yield subscription, entry


def _named(entry: Message | Gap) -> str:
    if isinstance(entry, Message):
        return f"{entry.id} at {entry.seq} ({entry.at:.2f} s)"
    extent = f"{entry.first} to {entry.last}, missed {entry.missed}"
    return f"gap {entry.reason} {extent} ({entry.at:.2f} s)"


RULES: Final[tuple[Callable[[History], Iterator[Violation]], ...]] = (
    published,
    asked,
    ordered,
    once,
    numbered,
    in_turn,
    lost,
    crossed,
    proven,
    allowed,
    connected,
    present,
    served,
)
