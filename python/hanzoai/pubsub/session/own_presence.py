"""The client's own presence: sent until the server has it, and again on a new connection.

PRES-3. One update per topic is in flight at a time, within the rate of publishes; changes in the
meantime are merged into one update, in which the last value of each key counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hanzoai.pubsub.generated.wire import PresenceUpdateFrame
from hanzoai.pubsub.session.events import RATE_LIMITED, rejection
from hanzoai.pubsub.session.ports import Acked, Rejected, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hanzoai.pubsub.generated.wire import ErrorFrame
    from hanzoai.pubsub.session.ports import Context, Outcome
    from hanzoai.pubsub.session.publishes import Publishes
    from hanzoai.pubsub.session.routes import Routes

MAX_TOPICS: Final = 10_000
"""Maximum topics with own presence; updates of others are rejected."""

_ACKNOWLEDGED: Final = Acked(())
"""The server acknowledged it, or a later update with the same content."""


class _Update(NamedTuple):
    """An update in flight, with the calls that wait for it."""

    topic: str | None
    data: dict[str, Any]
    refs: Sequence[int]


class PresenceValues:
    """Keys and values by topic; the topic None is for all topics."""

    def __init__(self) -> None:
        self.by_topic: dict[str | None, dict[str, Any]] = {}

    def update(self, topic: str | None, data: Mapping[str, Any]) -> None:
        """Merge an update: the last value of each key counts; null deletes on the server."""
        if topic is None:
            for other in list(self.by_topic):
                self.forget(other, data)
        earlier = self.by_topic.pop(topic, {})
        self.by_topic[topic] = {**earlier, **data}

    def restore(self, topic: str | None, data: Mapping[str, Any]) -> None:
        """Merge an update that is older than all present ones."""
        left = self.missing(topic, data)
        if left:
            self.by_topic[topic] = {**left, **self.by_topic.get(topic, {})}

    def missing(self, topic: str | None, data: Mapping[str, Any]) -> dict[str, Any]:
        """The part of an update that no update here replaces."""
        newer = self.by_topic.get(None, {}).keys() | self.by_topic.get(topic, {}).keys()
        return {key: data[key] for key in data if key not in newer}

    def forget(self, topic: str | None, data: Mapping[str, Any]) -> None:
        """Drop the values under the keys of `data`."""
        earlier = self.by_topic.get(topic, {})
        left = {key: earlier[key] for key in earlier if key not in data}
        if left:
            self.by_topic[topic] = left
        else:
            self.by_topic.pop(topic, None)

    def items(self) -> list[tuple[str | None, dict[str, Any]]]:
        """The updates to send: first that for all topics, then those for single topics."""
        return sorted(self.by_topic.items(), key=lambda item: item[0] is not None)


class OwnPresence:
    """The client's own presence on each topic, until the server has it."""

    def __init__(self, context: Context, publishes: Publishes, routes: Routes) -> None:
        self._context = context
        self._ports = context.ports
        self._publishes = publishes
        self._routes = routes
        self._own = PresenceValues()
        self._later = PresenceValues()
        self._waiting: dict[str | None, list[int]] = {}
        self._in_flight: dict[str, _Update] = {}  # by `ref`; at most one for each topic
        self._calls: set[int] = set()  # without an outcome
        self._number = 0

    def update(self, topic: str | None, data: Mapping[str, Any], ref: int) -> None:
        """Merge an update and send it; `ref` is settled when the server has it."""
        own = self._own.by_topic
        if topic is not None and topic not in own and len(own) >= MAX_TOPICS:
            message = f"This client has already set presence on {MAX_TOPICS:,} topics."
            remedy = "Unsubscribe from some of these topics, or use several clients."
            error = Rejected(code="queue_full", message=message, remedy=remedy, topic=topic)
            self._ports.settle(ref, error)
            return
        self._calls.add(ref)
        self._own.update(topic, data)
        self._later.update(topic, data)
        self._wait(topic, [ref])
        if topic is None:
            self._merge_waiting()
        self.flush()

    def expire(self, refs: Iterable[int]) -> None:
        """Calls have ended: settle them as unknown. Their updates are still sent."""
        self._settle(refs, Unknown())
        self.flush()

    def connected(self) -> None:
        """Send the own presence on a new connection, also what the last one left unanswered."""
        self._later.by_topic = self._own.by_topic.copy()
        for update in self._in_flight.values():
            self._wait(update.topic, update.refs)
        self._in_flight.clear()
        self._merge_waiting()
        self.flush()

    def flush(self) -> None:
        """Send waiting updates, if allowed now."""
        peer = self._context.peer
        if peer is None:
            return
        busy = {update.topic for update in self._in_flight.values()}
        answers = peer.acks and "ref" in peer.features
        for topic, data in self._later.items():
            # Keep the order between an update for all topics and one for a single topic.
            if busy if topic is None else None in busy:
                return
            if topic in busy:
                continue
            if not self._publishes.take_turn():
                return
            refs = self._waiting.pop(topic, [])
            del self._later.by_topic[topic]
            self._number += 1
            ref = f"m{self._number}"
            frame = PresenceUpdateFrame(topic=topic, data=data, ref=ref)
            self._ports.send(frame)
            if answers:
                self._in_flight[ref] = _Update(topic, data, refs)
                busy.add(topic)
            else:
                self._settle(refs, _ACKNOWLEDGED)

    def acknowledged(self, ref: str | None) -> None:
        """The server answered."""
        update = self._in_flight.pop(ref or "", None)
        if update is not None:
            self._settle(update.refs, _ACKNOWLEDGED)
            self.flush()

    def rejected(self, frame: ErrorFrame) -> None:
        """The server rejected the update with the `ref`, if there is one."""
        update = self._in_flight.pop(frame.ref or "", None)
        if update is None:
            return
        if frame.code == RATE_LIMITED:
            self._later.restore(update.topic, update.data)
            self._wait(update.topic, update.refs)
        else:
            self._own.forget(update.topic, self._later.missing(update.topic, update.data))
            error = rejection(frame)
            error = error.model_copy(update={"topic": error.topic or update.topic})
            if not self._settle(update.refs, error):  # its calls have ended
                self._ports.problem(error)
        self.flush()

    def settle_all(self, error: Rejected) -> None:
        """The session has ended, and its connection is lost."""
        self._settle(self._calls, error)

    def drop_topics(self, patterns: Sequence[str]) -> None:
        """A subscription has ended: drop updates of topics that no other one names.

        Subscribers of a pattern that matches a topic are not its members.
        """
        for topic in patterns:
            if topic not in self._routes.by_pattern:
                self._own.by_topic.pop(topic, None)

    def _wait(self, topic: str | None, refs: Sequence[int]) -> None:
        """Let calls wait for the next update of a topic, or for one of all topics in its place."""
        for later in (topic, None):
            if later in self._later.by_topic:
                all_refs = (*self._waiting.get(later, ()), *refs)
                self._waiting[later] = sorted(self._calls.intersection(all_refs))
                return
        self._settle(refs, _ACKNOWLEDGED)

    def _merge_waiting(self) -> None:
        """Let calls whose updates were replaced wait for what took their place."""
        waiting, self._waiting = self._waiting, {}
        for topic, refs in waiting.items():
            self._wait(topic, refs)

    def _settle(self, refs: Iterable[int], outcome: Outcome) -> bool:
        """Settle those of the calls that have no outcome yet; False if there are none."""
        settled = sorted(self._calls.intersection(refs))
        self._calls.difference_update(settled)
        for ref in settled:
            self._ports.settle(ref, outcome)
        return bool(settled)
