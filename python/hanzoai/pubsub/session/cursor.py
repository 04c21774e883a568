"""The position of a subscription, for replays without silent losses or repeats.

`SeqCursor` uses `seq`, the position that a server assigns to each message of a topic. It reports
missing messages at their place in the order. A dialect may provide another kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from hanzoai.pubsub.generated.defaults import CLIENT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from hanzoai.pubsub.generated.wire import Envelope
    from hanzoai.pubsub.session.events import Subscribe
    from hanzoai.pubsub.settings.session import SessionOptions

MissingReason: TypeAlias = Literal["history_trimmed", "log_reset", "unproven"]


class Missing(NamedTuple):
    """Missing messages of a topic; the fields are those of the effect `Gap`."""

    topic: str
    from_: int | None
    to: int | None
    missed: int | None
    reason: MissingReason


Step: TypeAlias = "Envelope | Missing"


class Request(NamedTuple):
    """Start of a replay: after `since` (Unix milliseconds), or more exactly `after` positions."""

    since: int | None
    after: dict[str, int]


@dataclass(slots=True)
class Replay:
    """The answer to a `subscribe`, with the live messages that arrived before it.

    Attributes:
        history: Replayed messages, oldest first.
        held: Live messages received after the request, in order. With a partial answer, those that
            precede one of its messages are taken, and are known afterwards.
        positions: Newest position of each topic when the subscription began.
        truncated: Topics whose log does not reach back to the request.
        reset: Topics whose log started again.
        timestamp: When the subscription began, by the server's clock.
        at: When the answer arrived, by this machine's clock.
        first: It is the first answer; holes between replayed messages are then not a loss.
        limit: Requested maximum per topic; only of a first replay.
        complete: No further part of the answer follows.
        whole: No held message was dropped.
        healed: Marks from which a request was made because of a jump, by topic; a remaining jump
            there is a gap.
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
    complete: bool = True
    whole: bool = True
    healed: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def began(self) -> int:
        """When the subscription began, by the best available clock."""
        return self.at if self.timestamp is None else self.timestamp


class Cursor(Protocol):
    """The position of one subscription."""

    @property
    def counts(self) -> bool:
        """Whether it uses `seq`; then a message without `seq` is ephemeral."""
        ...

    @property
    def positions(self) -> dict[str, int]:
        """Position of the newest message of each topic."""
        ...

    @property
    def topics(self) -> list[str]:
        """Topics with a known position."""
        ...

    @property
    def newest(self) -> int | None:
        """Time of the newest message, Unix milliseconds."""
        ...

    def begin(self, since: int | None) -> None:
        """Begin at another time than was asked for, knowing nothing."""

    def position(self, topic: str) -> int:
        """Position of the newest message of a topic; -1 if none is known."""
        ...

    def request(self) -> Request:
        """The start of the next request."""
        ...

    def admit(self, messages: Sequence[Envelope]) -> tuple[Sequence[Envelope], Sequence[Envelope]]:
        """Process consecutive live messages of one topic.

        Returns:
            The new ones, in order; and those from a hole on, which change nothing.
        """
        ...

    def replay(self, replay: Replay) -> tuple[list[Step], Sequence[Envelope]]:
        """Admit an answer with what was held; see `SeqCursor.replay`."""
        ...


class Cursors(Protocol):
    """Creates cursors for the peer."""

    @property
    def counts(self) -> bool:
        """Whether they use `seq`."""
        ...

    def make(self, request: Subscribe, options: SessionOptions) -> Cursor:
        """The cursor of a new subscription."""
        ...


class Mark:
    """Position and time of the newest message of a topic."""

    __slots__ = ("at", "seq")

    def __init__(self, seq: int, at: int) -> None:
        self.seq = seq
        self.at = at


class SeqCursor:
    """Positions by concrete topic (REC-1, REC-2, REC-3).

    Args:
        since: Start, Unix milliseconds; None for the time of the first `subscribed`.
        after: Start positions, by topic.
        overlap: Milliseconds by which the clocks of two nodes may differ.
        remembered: Maximum topics with a position; above it, the one idle longest is dropped, and
            its later messages are reported as unproven.
    """

    def __init__(
        self,
        since: int | None = None,
        after: Mapping[str, int] | None = None,
        *,
        overlap: int = CLIENT.overlap,
        remembered: int = CLIENT.remembered_topics,
    ) -> None:
        self.counts: Final = True
        self._since = since
        self._overlap = overlap
        self._marks: dict[str, Mark] = {t: Mark(seq, 0) for t, seq in (after or {}).items()}
        self._asked = frozenset(self._marks)
        self._remembered = max(1, remembered, len(self._marks))
        self._forgot = False
        # Topics of which the current answer has messages of more than one log.
        self._anew: set[str] = set()

    @property
    def positions(self) -> dict[str, int]:
        """Position of the newest message of each topic."""
        return {topic: mark.seq for topic, mark in self._marks.items()}

    @property
    def topics(self) -> list[str]:
        """Topics with a known position."""
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
        """The start of the next request."""
        self._anew.clear()
        self._asked = frozenset(self._marks)
        return Request(self._since, self.positions)

    def admit(self, messages: Sequence[Envelope]) -> tuple[Sequence[Envelope], Sequence[Envelope]]:
        """See `Cursor`."""
        topic = messages[0].topic
        mark = self._marks.get(topic)
        due = -1 if mark is None else mark.seq + 1
        new: list[Envelope] = []
        beyond: Sequence[Envelope] = ()
        last: Envelope | None = None
        for n, message in enumerate(messages):
            seq = message.seq
            if seq == due:
                due += 1
                last = message
                new.append(message)
            elif seq is None:
                new.append(message)
            elif due < 0:
                due = seq + 1
                last = message
                new.append(message)
            elif seq > due:
                beyond = messages[n:]
                break
        if last is not None:
            if mark is None:
                self._place(topic, due - 1, last.timestamp)
            else:
                mark.seq = due - 1
                mark.at = last.timestamp
                if len(self._marks) == self._remembered:
                    self._marks[topic] = self._marks.pop(topic)
        return new, beyond

    def replay(self, replay: Replay) -> tuple[list[Step], Sequence[Envelope]]:
        """Process an answer and the held messages.

        Returns:
            New messages and gaps, in order; and held messages after a hole that another request may
            fill, unless one was made for it.
        """
        if self._since is None and replay.complete:
            # `positions` names every existing topic, so messages of other topics are newer than
            # this subscription, regardless of the node's clock. A partial answer does not prove
            # this, because the rest may not arrive.
            self._since = max(0, replay.began - self._overlap)
        out: list[Step] = []
        reported: set[str] = set()
        proven: set[str] = set()
        for topic in dict.fromkeys(replay.reset):
            self._anew.add(topic)
            if (mark := self._marks.get(topic)) is not None:
                # Messages from before the loss precede the gap.
                self._live(topic, None, replay, reported, out)
                del self._marks[topic]
                out.append(Missing(topic, mark.seq + 1, None, None, "log_reset"))
                reported.add(topic)
        for message in replay.history:
            self._replayed(message, replay, reported, proven, out)
        pending = dict(replay.positions) if replay.whole or replay.first else {}
        for topic in [
            topic for topic in pending if topic not in self._marks or self._lenient(topic, replay)
        ]:
            self._reached(topic, pending.pop(topic), replay, reported, proven, out)
        held = replay.held if replay.complete else ()
        for n, message in enumerate(held):
            topic, seq = message.topic, message.seq
            if seq is not None and (position := pending.get(topic)) is not None and seq > position:
                self._reached(topic, pending.pop(topic), replay, reported, proven, out)
            if (
                seq is not None
                and (mark := self._marks.get(topic)) is not None
                and seq > mark.seq + 1
                and seq - 1 > replay.positions.get(topic, -1)
                and replay.healed.get(topic) != mark.seq
            ):
                return out, held[n:]
            self._replayed(message, replay, reported, None, out)
        for topic, position in pending.items():
            self._reached(topic, position, replay, reported, proven, out)
        return out, ()

    def _replayed(
        self,
        message: Envelope,
        replay: Replay,
        reported: set[str],
        proven: set[str] | None,
        out: list[Step],
    ) -> None:
        """One message of a history, or one held (then there is no `proven`).

        Holes after a replayed message, up to the position of the log, are in the same log, so their
        size is known.
        """
        topic, seq = message.topic, message.seq
        if seq is not None:
            if proven is not None:
                self._live_before(topic, seq - 1, replay, reported, out)
            mark = self._marks.get(topic)
            if mark is None:
                if topic in replay.truncated and topic not in reported and replay.limit is None:
                    out.append(Missing(topic, None, seq - 1, None, "history_trimmed"))
                elif self._forgot and not replay.first and topic not in reported:
                    out.append(Missing(topic, None, seq - 1, None, "unproven"))
                reported.add(topic)
                self._place(topic, seq, message.timestamp)
            elif seq <= mark.seq:
                return
            else:
                if seq > mark.seq + 1 and (proven is None or not self._lenient(topic, replay)):
                    known = self._counted(topic, replay, reported, proven or ())
                    out.append(self._hole(topic, mark.seq + 1, seq - 1, known=known))
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
        reported: set[str],
        proven: set[str],
        out: list[Step],
    ) -> None:
        """The log was at `position`: messages that have not arrived are missing."""
        self._live_before(topic, position, replay, reported, out)
        mark = self._marks.get(topic)
        if mark is None:
            if not replay.whole and not replay.first:
                return
            if topic in replay.truncated and topic not in reported and replay.limit is None:
                out.append(Missing(topic, None, position, None, "history_trimmed"))
            self._place(topic, position, replay.began)
        elif mark.seq < position:
            if not self._lenient(topic, replay):
                if not replay.whole:
                    return
                known = self._counted(topic, replay, reported, proven)
                out.append(self._hole(topic, mark.seq + 1, position, known=known))
            mark.seq = position

    def _live_before(
        self, topic: str, last: int, replay: Replay, reported: set[str], out: list[Step]
    ) -> None:
        """Fill a hole of the answer with live messages: the log may no longer have them."""
        if last > self.position(topic) and not self._lenient(topic, replay):
            self._live(topic, last, replay, reported, out)

    def _live(
        self, topic: str, last: int | None, replay: Replay, reported: set[str], out: list[Step]
    ) -> None:
        """Take the held messages of a topic up to `last`; None takes those that continue it."""
        later: list[Envelope] = []
        for message in replay.held:
            seq = message.seq
            if (
                message.topic != topic
                or seq is None
                or seq > (self.position(topic) + 1 if last is None else last)
            ):
                later.append(message)
            else:
                self._replayed(message, replay, reported, None, out)
        replay.held = later

    def _lenient(self, topic: str, replay: Replay) -> bool:
        """Whether to ignore holes: these messages expired before the subscription."""
        return replay.first and (replay.limit is not None or topic not in self._asked)

    def _counted(
        self, topic: str, replay: Replay, reported: set[str], proven: Collection[str]
    ) -> bool:
        """Whether both ends of a hole are of one log.

        They are if the log misses messages after the requested position, which is then in it, or
        after replayed ones. A log may have restarted more than once.
        """
        if topic in self._anew:
            return False
        return topic in proven or (topic in replay.truncated and topic not in reported)

    def _hole(self, topic: str, from_: int, to: int, *, known: bool) -> Missing:
        """A hole between two positions; `known`: both are of one log, which counts what is missing.

        In a restarted log, positions may jump without a missing message.
        """
        if known:
            return Missing(topic, from_, to, to - from_ + 1, "history_trimmed")
        reason: MissingReason = "log_reset" if topic in self._anew else "unproven"
        return Missing(topic, from_, to, None, reason)

    def _place(self, topic: str, seq: int, at: int) -> None:
        if len(self._marks) >= self._remembered:
            idle = next(iter(self._marks))
            gone = self._marks.pop(idle)
            self._since = max(self._since or 0, gone.at)
            self._forgot = True
        self._marks[topic] = Mark(seq, at)


class _BySeq:
    def __init__(self) -> None:
        self.counts: Final = True

    def make(self, request: Subscribe, options: SessionOptions) -> Cursor:
        return SeqCursor(
            request.since,
            request.after,
            overlap=options.overlap,
            remembered=options.remembered_topics,
        )


BY_SEQ: Final[Cursors] = _BySeq()
"""Cursors of servers that number messages."""
