"""The position of a subscription on a peer that implements only HIP-56.

The cursor requests messages from before its mark, and drops those with known ids.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from hanzoai.pubsub.gap import Gap
from hanzoai.pubsub.session.cursor import Request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from hanzoai.pubsub.gap import GapReason
    from hanzoai.pubsub.generated.wire import Message
    from hanzoai.pubsub.session.cursor import Replay
    from hanzoai.pubsub.session.ports import Subscribe
    from hanzoai.pubsub.settings.session import SessionOptions


class _Trace(NamedTuple):
    """The remembered part of a message.

    Attributes:
        at: Its time, Unix milliseconds; 0 if the peer did not state it.
        until: End of its retention, if known.
        passed: It was replayed, but not requested by the program; it is new if it arrives live.
    """

    at: int
    until: int | None
    passed: bool


class IdCursor:
    """One mark for the subscription, and the ids near it, for peers without `seq` (REC-1, H-043).

    Only ids identify known messages. Messages are never dropped for their age, because the clocks
    of nodes differ. So the first request also begins before `since`: messages in its answer that
    the program did not request are remembered, and a later answer shows which are new.

    Args:
        request: The start of the subscription.
        options: The length of the overlap, and the maximum ids.
        history: Messages that the peer is assumed to retain per topic.
    """

    def __init__(self, request: Subscribe, options: SessionOptions, history: int) -> None:
        self.uses_seq: Final = False
        self.retried: dict[str, int] = {}
        self._start = request.since
        self._after = request.after  # positions, which the peer does not support
        self._overlap = options.overlap  # milliseconds before the mark at which a replay begins
        self._ids = options.remembered_ids  # per topic
        # Above this number, the topic without messages for the longest time is dropped.
        self._topics = options.remembered_topics
        self._history = history
        self._newest: int | None = None
        self._began: int | None = None
        # Since the last replay, a live message was older than the start of the next one.
        self._late = False
        self._near: OrderedDict[str, OrderedDict[str, _Trace]] = OrderedDict()

    @property
    def newest(self) -> int | None:
        """The mark: time of the newest message, but at least the start, Unix milliseconds."""
        if self._newest is None:
            return self._began if self._start is None else self._start
        return max(self._newest, self._start or 0)

    def request(self) -> Request:
        """The start of the next request."""
        mark = self.newest
        return Request(None if mark is None else max(0, mark - self._overlap), {})

    def moved(self) -> tuple[int | None, Mapping[str, int | None]]:
        """See `Cursor`."""
        return self.newest, {**self._after, **dict.fromkeys(self._near)}

    def admit(self, messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
        """See `Cursor`: holes cannot be seen."""
        new: list[Message] = []
        for message in messages:
            trace = self._find(message)
            if trace is None or trace.passed:
                self._remember(message)
                new.append(message)
        return new, ()

    def replay(self, replay: Replay) -> Sequence[Message]:
        """Process an answer and the held messages as one batch.

        First the known ids are dropped, then the mark moves: moving it for each message would
        forget ids that the same batch repeats.
        """
        passed = self._passed(replay) if replay.first else set[tuple[str, str]]()
        if replay.first:
            known = [topic for topic, seq in self._after.items() if seq is not None]
            replay.steps += [Gap(topic, None, None, None, "unproven") for topic in known]
        if replay.limit is None:
            replay.steps += self._holes(replay, passed)
        fresh: dict[tuple[str, str], Message] = {}
        for message in (*replay.answer.history, *replay.held):
            if _key(message) in passed:
                self._remember(message, passed=True)
            elif self._find(message) is None:
                fresh[_key(message)] = message
        for message in fresh.values():
            self._remember(message)
        replay.steps += fresh.values()
        self._late = False
        if replay.first:
            # Without messages, the mark is the start, by the best available clock. The time of this
            # machine is only used until a message shows the server's time, which may be earlier.
            if replay.answer.timestamp is not None:
                self._newest = max(self._newest or 0, replay.answer.timestamp)
            else:
                self._began = replay.at
        return ()

    def _passed(self, replay: Replay) -> set[tuple[str, str]]:
        """The keys of messages of a first answer that the program did not request, or receive live.

        A message without a time is assumed to be requested.
        """
        start = self._start or 0
        requested = [m for m in replay.answer.history if not m.timestamp or m.timestamp > start]
        if replay.limit is not None:
            requested = _newest_of_each(requested, replay.limit)
        wanted = map(_key, (*requested, *replay.held))
        return set(map(_key, replay.answer.history)).difference(wanted)

    def _holes(self, replay: Replay, passed: Collection[tuple[str, str]]) -> Iterable[Gap]:
        """Gaps of topics whose replay may not be complete."""
        since = self.request().since or 0
        proven: set[str] = set()
        counts: dict[str, int] = {}
        for message in replay.answer.history:
            topic = message.topic
            # If held messages were dropped, the log may have lost them since.
            before = replay.whole and _key(message) in passed
            if before or self._find(message) is not None:
                proven.add(topic)
            if not before:
                counts[topic] = counts.get(topic, 0) + 1
        for topic in dict.fromkeys((*self._near, *counts, *replay.answer.truncated)):
            trimmed = topic in replay.answer.truncated
            may_miss = (
                trimmed
                or counts.get(topic, 0) >= self._history
                or self._expects(topic, since, replay.at)
            )
            if self._late or (may_miss and topic not in proven):
                reason: GapReason = "history_trimmed" if trimmed else "unproven"
                yield Gap(topic, None, None, None, reason)

    def _expects(self, topic: str, since: int, now: int) -> bool:
        """Whether a replay must contain remembered messages."""
        near = self._near.get(topic)
        return near is not None and any(
            trace.at > since and (trace.until is None or now < trace.until)
            for trace in near.values()
        )

    def _find(self, message: Message) -> _Trace | None:
        near = self._near.get(message.topic)
        return None if near is None else near.get(message.id)

    def _remember(self, message: Message, *, passed: bool = False) -> None:
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
        edge = max(self._newest, self._start or 0) - self._overlap
        if at and at < edge:
            # Clocks differ by more than `overlap`: a replay may not contain others like it.
            self._late = True
        while near:
            oldest = next(iter(near.values()))
            if (not oldest.at or oldest.at >= edge) and len(near) < self._ids:
                break
            near.popitem(last=False)
        near[message.id] = _Trace(at, None if ttl is None else at + ttl * 1000, passed)


def _key(message: Message) -> tuple[str, str]:
    return message.topic, message.id


def _newest_of_each(history: Sequence[Message], limit: int) -> list[Message]:
    left: dict[str, int] = {}
    kept: list[Message] = []
    for message in reversed(history):
        n = left.get(message.topic, limit)
        if n > 0:
            left[message.topic] = n - 1
            kept.append(message)
    return kept
