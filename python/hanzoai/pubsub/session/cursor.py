"""The position of a subscription, for replays without silent losses or repeats.

`SeqCursor` uses `seq`, the position that a server assigns to each message of a topic. It reports
missing messages at their place in the order. A dialect may provide another kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from hanzoai.pubsub.gap import Gap
from hanzoai.pubsub.wire.runs import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hanzoai.pubsub.gap import GapReason
    from hanzoai.pubsub.generated.wire import Denial, Message, SubscribedFrame
    from hanzoai.pubsub.session.ports import Subscribe
    from hanzoai.pubsub.settings.session import SessionOptions

Step: TypeAlias = "Message | Gap"


class Request(NamedTuple):
    """Start of a replay: after `since` (Unix milliseconds), or more exactly `after` positions."""

    since: int | None
    after: dict[str, int]


@dataclass(slots=True)
class Answer:
    """The answer to a `subscribe`, from one frame or several; see `SubscribedFrame`."""

    history: list[Message] = field(default_factory=list["Message"])
    positions: dict[str, int] = field(default_factory=dict[str, int])
    truncated: dict[str, None] = field(default_factory=dict[str, None])
    reset: dict[str, None] = field(default_factory=dict[str, None])
    denied: list[Denial] = field(default_factory=list["Denial"])
    timestamp: int | None = None

    def add(self, frame: SubscribedFrame) -> None:
        """Add a frame."""
        self.history += frame.history or ()
        self.positions |= frame.positions or {}
        self.truncated |= dict.fromkeys(frame.truncated or ())
        self.reset |= dict.fromkeys(frame.reset or ())
        self.denied += frame.denied or ()
        if self.timestamp is None:
            self.timestamp = frame.timestamp


@dataclass(slots=True)
class Replay:
    """The answer to an open request as far as it has arrived, and the live messages before it.

    Attributes:
        answer: The answer.
        held: Live messages received after the request, in order. Those that precede a message of
            a partial answer are taken.
        lost: Number of dropped messages without a position, by topic.
        whole: No held message was dropped.
        at: When the last part of the answer arrived, by this machine's clock.
        first: It is the first answer; holes between replayed messages are then not a loss.
        limit: Requested maximum per topic; only of a first replay.
        complete: No further part of the answer follows.
        steps: Gaps that began with a change of the peer, then new messages and gaps, in order.
    """

    answer: Answer = field(default_factory=Answer)
    held: list[Message] = field(default_factory=list["Message"])
    lost: dict[str, int] = field(default_factory=dict[str, int])
    whole: bool = True
    at: int = 0
    first: bool = False
    limit: int | None = None
    complete: bool = True
    steps: list[Step] = field(default_factory=list["Step"])

    @property
    def began(self) -> int:
        """When the subscription began, by the best available clock."""
        stated = self.answer.timestamp
        return self.at if stated is None else stated


class Cursor(Protocol):
    """The position of one subscription.

    Attributes:
        retried: Positions after which messages were missing, by topic. They were requested again
            once; if they are still missing, they are a gap.
    """

    retried: dict[str, int]

    @property
    def uses_seq(self) -> bool:
        """Whether it uses `seq`; then a message without `seq` is ephemeral."""
        ...

    def request(self) -> Request:
        """The start of the next request."""
        ...

    def moved(self) -> tuple[int | None, Mapping[str, int | None]]:
        """`since` and `after` for another peer, where the positions of this one are not valid."""
        ...

    def admit(self, messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
        """Process consecutive live messages of one topic.

        Returns:
            The new ones, in order; and those from a hole on, which do not move the position.
        """
        ...

    def replay(self, replay: Replay) -> Sequence[Message]:
        """Process an answer and the held messages: add new messages and gaps to its steps.

        Returns:
            Held messages after a hole that another request may fill, unless one was made for it.
        """
        ...


Cursors: TypeAlias = "Callable[[Subscribe, SessionOptions], Cursor]"
"""Creates the cursor of a subscription, for the current peer."""


@dataclass(slots=True)
class Mark:
    """Position and time of the newest message of a topic.

    Attributes:
        seq: The position.
        at: The time, Unix milliseconds.
    """

    seq: int
    at: int


class SeqCursor:
    """Positions by concrete topic, on a server that numbers messages (REC-1, REC-2, REC-3)."""

    def __init__(self, request: Subscribe, options: SessionOptions) -> None:
        self.uses_seq: Final = True
        self.retried: dict[str, int] = {}
        # Unix milliseconds; None until the first `subscribed`, whose time it then is.
        self._since = request.since
        self._overlap = options.overlap  # milliseconds by which the clocks of two nodes may differ
        # None: the peer has not stated a position, or has lost the log.
        self._marks: dict[str, Mark | None] = {
            topic: None if seq is None else Mark(seq, 0) for topic, seq in request.after.items()
        }
        self._requested: frozenset[str] = frozenset()  # topics with a position in the last request
        # Above this number of topics, the one idle longest is dropped, and its later messages are
        # reported as unproven.
        self._remembered = options.remembered_topics
        self._has_dropped = False
        self._behind = 0  # milliseconds whose messages another node has to replay again
        # Topics of which the current answer has messages.
        self._proven: set[str] = set()
        # Topics of which the current answer has messages of more than one log.
        self._restarted: set[str] = set()

    @property
    def positions(self) -> dict[str, int]:
        """Position of the newest message of each topic."""
        return {topic: mark.seq for topic, mark in self._marks.items() if mark is not None}

    def request(self) -> Request:
        """The start of the next request."""
        self._proven.clear()
        self._restarted.clear()
        after = self.positions
        self._requested = frozenset(after)
        return Request(self._since, after)

    def moved(self) -> tuple[int | None, Mapping[str, int | None]]:
        """See `Cursor`."""
        newest = max((mark.at for mark in self._marks.values() if mark is not None), default=0)
        after = {
            topic: None if mark is None or mark.at else mark.seq
            for topic, mark in self._marks.items()
        }
        return newest - self._behind if newest else self._since, after

    def admit(self, messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
        """See `Cursor`."""
        topic = messages[0].topic
        mark = self._marks.get(topic)
        due = -1 if mark is None else mark.seq + 1
        new: list[Message] = []
        beyond: Sequence[Message] = ()
        last: Message | None = None
        if type(messages) is Run and messages.first == due:
            due += len(messages)
            new, last, messages = messages, messages[-1], ()
        for n, message in enumerate(messages):
            seq = message.seq
            if seq is not None:
                if due >= 0 and seq != due:
                    if seq < due:
                        continue
                    self.retried[topic] = due - 1
                    beyond = messages[n:]
                    break
                due = seq + 1
                last = message
            new.append(message)
        if last is not None:
            if mark is None or len(self._marks) >= self._remembered:
                self._set_mark(topic, due - 1, last.timestamp)
            else:
                mark.seq = due - 1
                mark.at = last.timestamp
            if len(new) > 1 and type(new) is list and new[0].seq == due - len(new):
                new = Run(new, due - len(new))
        return new, beyond

    def replay(self, replay: Replay) -> Sequence[Message]:
        """See `Cursor`."""
        answer = replay.answer
        # A part may end within a millisecond.
        self._behind = 0 if replay.complete else 1
        if self._since is None and replay.complete:
            # `positions` names every existing topic, so messages of other topics are newer than
            # this subscription, regardless of the node's clock. A partial answer does not prove
            # this, because the rest may not arrive.
            self._since = max(0, replay.began - self._overlap)
        for topic in answer.reset:
            self._restarted.add(topic)
            if (mark := self._marks.get(topic)) is not None:
                # Messages from before the loss precede the gap.
                self._take_held(replay, topic, mark)
                self._marks[topic] = None
                replay.steps.append(Gap(topic, mark.seq + 1, None, None, "log_reset"))
        for message in answer.history:
            self._take(replay, message, replayed=True)
        if not replay.complete:
            return ()
        # Messages up to these positions that have not arrived are missing.
        for topic, seq in answer.positions.items():
            self._advance(replay, topic, seq, replay.began, stated=True)
        held = replay.held
        for n, message in enumerate(held):
            mark = self._marks.get(message.topic)
            if (
                mark is not None
                and message.seq is not None
                and message.seq > mark.seq + 1
                and self.retried.get(message.topic) != mark.seq
            ):
                self.retried[message.topic] = mark.seq
                return held[n:]
            self._take(replay, message)
        return ()

    def _take(self, replay: Replay, message: Message, *, replayed: bool = False) -> None:
        """One message of the history, or one held."""
        topic, seq = message.topic, message.seq
        if seq is not None:
            if not self._advance(replay, topic, seq, message.timestamp):
                return
            if replayed:
                self._proven.add(topic)
        replay.steps.append(message)

    def _advance(
        self, replay: Replay, topic: str, seq: int, at: int, *, stated: bool = False
    ) -> bool:
        """The log of a topic is at `seq`: messages up to it that have not arrived are missing.

        Args:
            replay: The answer.
            topic: The topic.
            seq: The position.
            at: Its time.
            stated: The server has stated it without a message.

        Returns:
            Whether the position is new.
        """
        last = seq if stated else seq - 1
        # A new subscription does not miss messages that expired before it.
        strict = not replay.first or (replay.limit is None and topic in self._requested)
        mark = self._marks.get(topic)
        if strict and last > (-1 if mark is None else mark.seq):
            # Fill a hole of the answer with live messages: the log may no longer have them.
            self._take_held(replay, topic, last)
            mark = self._marks.get(topic)
        restarted = topic in self._restarted  # which is reported already
        trimmed = topic in replay.answer.truncated
        if mark is None:
            if trimmed and replay.limit is None and not restarted:
                replay.steps.append(Gap(topic, None, last, None, "history_trimmed"))
            elif (
                self._has_dropped
                and topic not in self._marks
                and not (restarted or replay.first or stated)
            ):
                replay.steps.append(Gap(topic, None, last, None, "unproven"))
            self._set_mark(topic, seq, at)
            return True
        if seq <= mark.seq:
            mark.at = mark.at or at  # the peer has confirmed a position of the program
            return False
        if strict and last > mark.seq:
            if stated and not replay.whole:
                return False
            # Both ends are in one log if it misses messages after the requested position or after
            # replayed ones: their number is known, unless the log started again.
            known = not restarted and (trimmed or topic in self._proven)
            missed = last - mark.seq if known else None
            # Any log begins at a position above the time of all earlier messages, in microseconds,
            # and 1,000 above all earlier positions.
            least = max((mark.at + 1) * 1_000, mark.seq + 1_000)
            leapt = mark.at > 0 and seq >= least
            reason: GapReason = (
                "history_trimmed" if known else "log_reset" if restarted or leapt else "unproven"
            )
            replay.steps.append(Gap(topic, mark.seq + 1, last, missed, reason))
        mark.seq = seq
        mark.at = at
        return True

    def _take_held(self, replay: Replay, topic: str, last: int | Mark) -> None:
        """Take the held messages of a topic up to `last`, or those that continue its mark."""
        later: list[Message] = []
        for message in replay.held:
            seq = message.seq
            most = last if isinstance(last, int) else last.seq + 1
            if message.topic != topic or seq is None or seq > most:
                later.append(message)
            else:
                self._take(replay, message)
        replay.held = later

    def _set_mark(self, topic: str, seq: int, at: int) -> None:
        if topic in self._marks:
            del self._marks[topic]
        elif len(self._marks) >= self._remembered:
            idle = next(iter(self._marks))
            mark = self._marks.pop(idle)
            self._since = max(self._since or 0, 0 if mark is None else mark.at)
            self._proven.discard(idle)
            self._has_dropped = True
        self._marks[topic] = Mark(seq, at)
