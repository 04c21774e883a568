"""Where a subscription stands: enough memory to replay without a loss that is silent or a repeat.

Two kinds. `SeqCursor` counts by `seq`, the position that a server gives each message of a topic.
`IdCursor` serves peers that know HIP-56 and nothing more: it asks from before its mark and drops
the ids that it knows. Both say where something is missing, in its place in the order.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from hanzoai.pubsub.generated.defaults import CLIENT, LIMITS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from hanzoai.pubsub.generated.wire import Envelope

Verdict: TypeAlias = Literal[0, 1, 2]
KNOWN: Final = 0
NEW: Final = 1
JUMP: Final = 2


class Missing(NamedTuple):
    """Messages of a topic that are not there; the fields are those of the effect `Gap`."""

    topic: str
    from_: int | None
    to: int | None
    missed: int | None
    reason: Literal["history_trimmed", "log_reset", "unproven"]


Step: TypeAlias = "Envelope | Missing"


class Request(NamedTuple):
    """What a replay has to begin after: `since` (Unix milliseconds), or more exactly `after`."""

    since: int | None
    after: dict[str, int]


@dataclass(slots=True)
class Replay:
    """The answer to a `subscribe`, with the live messages that overtook it.

    Attributes:
        history: What the server replayed, oldest first.
        held: Live messages that came after the request, in order.
        positions: Newest position of each topic when the subscription began.
        truncated: Topics whose log does not reach back to what was asked.
        reset: Topics whose log began anew.
        timestamp: When the subscription began, by the server's clock.
        at: When the answer came, by ours.
        first: No answer came before; holes between replayed messages are not a loss of ours then.
        limit: At most so many a topic were asked for; only of a first replay.
        whole: No held message was thrown away.
        healed: Marks from which a request was made because of a jump, by topic; a jump that is
            left there is a gap.
    """

    history: Sequence[Envelope]
    held: Sequence[Envelope]
    positions: Mapping[str, int] = field(default_factory=dict[str, int])
    truncated: Collection[str] = ()
    reset: Iterable[str] = ()
    timestamp: int | None = None
    at: int = 0
    first: bool = False
    limit: int | None = None
    whole: bool = True
    healed: Mapping[str, int] = field(default_factory=dict[str, int])


class Mark:
    """The newest message of a topic: its position and its time."""

    __slots__ = ("at", "seq")

    def __init__(self, seq: int, at: int) -> None:
        self.seq = seq
        self.at = at


class SeqCursor:
    """Positions by concrete topic (REC-1, REC-2, REC-3).

    Args:
        since: Where to begin, Unix milliseconds; None for the time of the first `subscribed`.
        after: Where to begin, by topic.
        overlap: Milliseconds by which the clocks of two nodes may differ.
        remembered: Topics whose position is kept; the one idle longest gives way. What comes of it
            later is said to be unproven.
    """

    def __init__(
        self,
        since: int | None = None,
        after: Mapping[str, int] | None = None,
        *,
        overlap: int = CLIENT.overlap,
        remembered: int = CLIENT.remembered_topics,
    ) -> None:
        self._since = since
        self._overlap = overlap
        self._marks: dict[str, Mark] = {t: Mark(seq, 0) for t, seq in (after or {}).items()}
        self._asked: Final = frozenset(self._marks)
        self._remembered = max(1, remembered, len(self._marks))
        self._forgot = False

    @property
    def positions(self) -> dict[str, int]:
        """Position of the newest message of each topic."""
        return {topic: mark.seq for topic, mark in self._marks.items()}

    @property
    def topics(self) -> list[str]:
        """Topics of which something is remembered."""
        return list(self._marks)

    @property
    def newest(self) -> int | None:
        """Time of the newest message, Unix milliseconds."""
        return max((mark.at for mark in self._marks.values()), default=self._since)

    def begin(self, since: int | None) -> None:
        """Begin at another time than was asked for, knowing nothing."""
        self._since = since
        self._marks.clear()

    def position(self, topic: str) -> int:
        """Position of the newest message of a topic; -1 if none is known."""
        mark = self._marks.get(topic)
        return -1 if mark is None else mark.seq

    def request(self) -> Request:
        """What to ask for."""
        return Request(self._since, self.positions)

    def admit(self, message: Envelope) -> Verdict:
        """Whether a live message is known, next, or beyond a hole (then nothing changes)."""
        seq = message.seq
        if seq is None:
            return NEW
        topic = message.topic
        mark = self._marks.get(topic)
        if mark is None:
            self._place(topic, seq, message.timestamp)
            return NEW
        if seq == mark.seq + 1:
            mark.seq = seq
            mark.at = message.timestamp
            if len(self._marks) == self._remembered:
                self._marks[topic] = self._marks.pop(topic)
            return NEW
        return KNOWN if seq <= mark.seq else JUMP

    def replay(self, replay: Replay) -> tuple[list[Step], Sequence[Envelope]]:
        """Admit an answer with what was held.

        Returns:
            The messages that are new and what is missing, in order; and held messages beyond a hole
            that another request may close, unless one was made for that.
        """
        if self._since is None:
            # `positions` names every topic there was, so what comes of another one is newer than
            # this subscription, whatever the clock of the node that stamped it.
            began = replay.at if replay.timestamp is None else replay.timestamp
            self._since = max(0, began - self._overlap)
        out: list[Step] = []
        told: set[str] = set()
        proven: set[str] = set()
        for topic in dict.fromkeys(replay.reset):
            if (mark := self._marks.pop(topic, None)) is not None:
                out.append(Missing(topic, mark.seq + 1, None, None, "log_reset"))
                told.add(topic)
        for message in replay.history:
            self._replayed(message, replay, told, proven, out)
        pending = dict(replay.positions) if replay.whole or replay.first else {}
        for topic in [topic for topic in pending if topic not in self._marks]:
            self._reached(topic, pending.pop(topic), replay, told, proven, out)
        for n, message in enumerate(replay.held):
            topic, seq = message.topic, message.seq
            if seq is not None and (position := pending.get(topic)) is not None and seq > position:
                self._reached(topic, pending.pop(topic), replay, told, proven, out)
            if (
                seq is not None
                and (mark := self._marks.get(topic)) is not None
                and seq > mark.seq + 1
                and replay.healed.get(topic) != mark.seq
            ):
                return out, replay.held[n:]
            self._replayed(message, replay, told, None, out)
        for topic, position in pending.items():
            self._reached(topic, position, replay, told, proven, out)
        return out, ()

    def _replayed(
        self,
        message: Envelope,
        replay: Replay,
        told: set[str],
        proven: set[str] | None,
        out: list[Step],
    ) -> None:
        """One message of a history, or one held (then there is no `proven`).

        Holes behind a replayed message, up to the position of the log, lie in the same log: their
        size is known.
        """
        topic, seq = message.topic, message.seq
        if seq is not None:
            mark = self._marks.get(topic)
            if mark is None:
                if topic in replay.truncated and topic not in told and replay.limit is None:
                    out.append(Missing(topic, None, seq - 1, None, "history_trimmed"))
                elif self._forgot and not replay.first and topic not in told:
                    out.append(Missing(topic, None, seq - 1, None, "unproven"))
                told.add(topic)
                self._place(topic, seq, message.timestamp)
            elif seq <= mark.seq:
                return
            else:
                if seq > mark.seq + 1 and (proven is None or not self._lenient(topic, replay)):
                    known = topic in replay.truncated or (proven is not None and topic in proven)
                    out.append(_hole(topic, mark.seq + 1, seq - 1, known=known))
                mark.seq = seq
                mark.at = message.timestamp
            if proven is not None:
                proven.add(topic)
        out.append(message)

    def _reached(
        self,
        topic: str,
        position: int,
        replay: Replay,
        told: set[str],
        proven: set[str],
        out: list[Step],
    ) -> None:
        """The log stood at `position`: what is not here by now is not going to come."""
        mark = self._marks.get(topic)
        if mark is None:
            if not replay.whole and not replay.first:
                return
            if topic in replay.truncated and topic not in told and replay.limit is None:
                out.append(Missing(topic, None, position, None, "history_trimmed"))
            self._place(topic, position, replay.timestamp or replay.at)
        elif mark.seq < position:
            if not replay.whole:
                return
            if not self._lenient(topic, replay):
                known = topic in replay.truncated or topic in proven
                out.append(_hole(topic, mark.seq + 1, position, known=known))
            mark.seq = position

    def _lenient(self, topic: str, replay: Replay) -> bool:
        """Whether holes do not count: nobody was there to miss what had expired by then."""
        return replay.first and (replay.limit is not None or topic not in self._asked)

    def _place(self, topic: str, seq: int, at: int) -> None:
        if len(self._marks) >= self._remembered:
            idle = next(iter(self._marks))
            gone = self._marks.pop(idle)
            self._since = max(self._since or 0, gone.at)
            self._forgot = True
        self._marks[topic] = Mark(seq, at)


def _hole(topic: str, from_: int, to: int, *, known: bool) -> Missing:
    if known:
        return Missing(topic, from_, to, to - from_ + 1, "history_trimmed")
    return Missing(topic, from_, to, None, "unproven")


class _Trace(NamedTuple):
    """What is kept of a message: its time, and when its retention ends if it is said to."""

    at: int
    until: int | None


class IdCursor:
    """One mark for the subscription, and the ids near it, for peers without `seq` (REC-1, H-043).

    A message is known by its id alone, never refused for its age: clocks of several nodes differ.

    Args:
        since: Where to begin, Unix milliseconds.
        after: Positions cannot be asked for here; each topic in it is reported as unproven.
        overlap: Milliseconds before the newest message from which a replay is asked for.
        ids: Ids kept a topic.
        topics: Topics whose ids are kept; the one idle longest gives way.
        history: Messages a topic that the peer is taken to retain.
    """

    def __init__(
        self,
        since: int | None = None,
        after: Mapping[str, int] | None = None,
        *,
        overlap: int = CLIENT.overlap,
        ids: int = CLIENT.remembered_ids,
        topics: int = CLIENT.remembered_topics,
        history: int = LIMITS.history_max_messages,
    ) -> None:
        self._start = since
        self._unproven = tuple(after or ())
        self._overlap = overlap
        self._ids = max(1, ids)
        self._topics = max(1, topics)
        self._history = history
        self._newest: int | None = None
        self._began: int | None = None
        self._near: OrderedDict[str, OrderedDict[str, _Trace]] = OrderedDict()

    @property
    def positions(self) -> dict[str, int]:
        """None: this peer has none."""
        return {}

    def position(self, topic: str) -> int:
        """None: -1."""
        return -1

    @property
    def topics(self) -> list[str]:
        """Topics of which something is remembered."""
        return list(self._near)

    @property
    def newest(self) -> int | None:
        """Time of the newest message, Unix milliseconds."""
        if self._newest is not None:
            return self._newest
        return self._start if self._began is None else self._began

    def begin(self, since: int | None) -> None:
        """Begin at another time than was asked for, knowing nothing."""
        self._start = since
        self._unproven = ()

    def request(self) -> Request:
        """What to ask for."""
        newest = self._began if self._newest is None else self._newest
        if newest is None:
            return Request(self._start, {})
        since = max(0, newest - self._overlap)
        return Request(since if self._start is None else max(since, self._start), {})

    def admit(self, message: Envelope) -> Verdict:
        """Whether a live message is known or new."""
        near = self._near.get(message.topic)
        if near is not None and message.id in near:
            return KNOWN
        self._remember(message)
        return NEW

    def replay(self, replay: Replay) -> tuple[list[Step], Sequence[Envelope]]:
        """Admit an answer with what was held as one batch.

        First the known ids are dropped, then the mark moves: moving it one by one would forget ids
        that the same batch repeats.
        """
        since = self.request().since
        history = replay.history
        if replay.limit is not None:
            history = _newest_of_each(history, replay.limit)
        out: list[Step] = []
        if replay.first:
            out += [Missing(t, None, None, None, "unproven") for t in self._unproven]
        else:
            out += self._holes(replay, since)
        fresh: dict[tuple[str, str], Envelope] = {}
        for message in (*history, *replay.held):
            near = self._near.get(message.topic)
            if near is None or message.id not in near:
                fresh.setdefault((message.topic, message.id), message)
        for message in fresh.values():
            self._remember(message)
        out += fresh.values()
        if replay.first:
            self._begin(replay)
        return out, ()

    def _begin(self, replay: Replay) -> None:
        """An idle subscription has a mark too: when it began, by the best clock there is.

        By our own clock it holds only until a message tells the server's, which may be behind ours.
        """
        if replay.timestamp is not None:
            self._newest = max(self._newest or 0, replay.timestamp)
        else:
            self._began = replay.at

    def _holes(self, replay: Replay, since: int | None) -> Iterable[Missing]:
        proven: set[str] = set()
        counts: dict[str, int] = {}
        for message in replay.history:
            topic = message.topic
            counts[topic] = counts.get(topic, 0) + 1
            near = self._near.get(topic)
            if near is not None and message.id in near:
                proven.add(topic)
        for topic in dict.fromkeys((*self._near, *counts, *replay.truncated)):
            if topic in replay.truncated:
                yield Missing(topic, None, None, None, "history_trimmed")
            elif topic not in proven and (
                counts.get(topic, 0) >= self._history or self._expects(topic, since or 0, replay.at)
            ):
                yield Missing(topic, None, None, None, "unproven")

    def _expects(self, topic: str, since: int, now: int) -> bool:
        """Whether a replay must hold something of what is remembered."""
        return any(
            trace.at > since and (trace.until is None or now < trace.until)
            for trace in self._near.get(topic, {}).values()
        )

    def _remember(self, message: Envelope) -> None:
        topic, at, ttl = message.topic, message.timestamp, message.ttl
        near = self._near.get(topic)
        if near is None:
            if len(self._near) >= self._topics:
                self._near.popitem(last=False)
            near = self._near[topic] = OrderedDict()
        else:
            self._near.move_to_end(topic)
        if self._newest is None or at > self._newest:
            self._newest = at
        edge = self._newest - self._overlap
        while near:
            oldest = next(iter(near.values()))
            if oldest.at >= edge and len(near) < self._ids:
                break
            near.popitem(last=False)
        near[message.id] = _Trace(at, None if ttl is None else at + ttl * 1000)


def _newest_of_each(history: Sequence[Envelope], limit: int) -> list[Envelope]:
    left: dict[str, int] = {}
    kept: list[Envelope] = []
    for message in reversed(history):
        n = left.get(message.topic, limit)
        if n > 0:
            left[message.topic] = n - 1
            kept.append(message)
    kept.reverse()
    return kept
