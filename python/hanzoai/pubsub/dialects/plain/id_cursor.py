"""The position of a subscription on a peer that implements only HIP-56.

The cursor requests messages from before its mark, and drops those with known ids.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from hanzoai.pubsub.generated.defaults import CLIENT, LIMITS
from hanzoai.pubsub.session.cursor import KNOWN, NEW, Missing, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hanzoai.pubsub.generated.wire import Envelope
    from hanzoai.pubsub.session.cursor import Replay, Step, Verdict


class _Trace(NamedTuple):
    """The remembered part of a message: its time, and the end of its retention, if known."""

    at: int
    until: int | None


class IdCursor:
    """One mark for the subscription, and the ids near it, for peers without `seq` (REC-1, H-043).

    Only ids identify known messages. Messages are never dropped for their age, because the clocks
    of nodes differ.

    Args:
        since: Start of the replay, Unix milliseconds.
        after: The peer does not support positions; each topic in it is reported as unproven.
        overlap: Milliseconds before the newest message at which a replay begins.
        ids: Maximum ids per topic.
        topics: Maximum topics with ids; the one without messages for the longest time is dropped
            first.
        history: Messages that the peer is assumed to retain per topic.
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
        self.counts: Final = False
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
        """Always empty: this peer has no positions."""
        return {}

    def position(self, topic: str) -> int:
        """Always -1: this peer has no positions."""
        return -1

    @property
    def topics(self) -> list[str]:
        """Topics with remembered messages."""
        return list(self._near)

    @property
    def newest(self) -> int | None:
        """Time of the newest message, Unix milliseconds."""
        if self._newest is not None:
            return self._newest
        return self._start if self._began is None else self._began

    def begin(self, since: int | None) -> None:
        """Start at another time than requested, without known messages."""
        self._start = since
        self._unproven = ()

    def request(self) -> Request:
        """The start of the next request."""
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
        """Process an answer and the held messages as one batch.

        First the known ids are dropped, then the mark moves: moving it for each message would
        forget ids that the same batch repeats.
        """
        since = self.request().since
        history = replay.history
        if replay.limit is not None:
            history = _newest_of_each(history, replay.limit)
        out: list[Step] = []
        if replay.first:
            out += [Missing(t, None, None, None, "unproven") for t in self._unproven]
        if replay.limit is None:
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
        """The mark of a subscription without messages: its start, by the best available clock.

        The time of this machine is only used until a message shows the server's time, which may be
        earlier.
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
        """Whether a replay must contain remembered messages."""
        near = self._near.get(topic)
        return near is not None and any(
            trace.at > since and (trace.until is None or now < trace.until)
            for trace in near.values()
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
