"""The dialect of servers that implement little more than HIP-56.

Such a server echoes no `ref`, so its answers are matched by their topics and their order; it may
acknowledge no publish, number no message, publish an id twice, or take no batch.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from hanzoai.pubsub.dialects.plain.id_cursor import IdCursor
from hanzoai.pubsub.generated.defaults import LIMITS
from hanzoai.pubsub.generated.wire import (
    Denial,
    ErrorFrame,
    ErrorInfo,
    PresenceUpdateFrame,
    PublishedFrame,
    PublishFrame,
    PublishResult,
    SubscribedFrame,
    SubscribeFrame,
    UnsubscribeFrame,
)
from hanzoai.pubsub.session.cursor import SeqCursor
from hanzoai.pubsub.session.events import RATE_LIMITED
from hanzoai.pubsub.session.publishes import result_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.generated.wire import ClientFrame, ServerFrame
    from hanzoai.pubsub.session.cursor import Cursor
    from hanzoai.pubsub.session.ports import Peer, Subscribe
    from hanzoai.pubsub.session.publishes import PublishState
    from hanzoai.pubsub.session.routes import SubscriptionState
    from hanzoai.pubsub.session.session import Session
    from hanzoai.pubsub.settings.session import SessionOptions

MAX_REQUESTS: Final = 10_000
"""Maximum remembered requests; a peer that does not echo `ref` may never answer some."""

MAX_BLIND: Final = 1_000
"""Maximum remembered topics of publishes, whose only answer is an `error` without a `ref`."""

MAX_DOUBTS: Final = 5
"""How often an `error` may be attributed to a publish before it counts for the subscription; once
if it names a topic of the subscription.
"""

_OF_PUBLISH: Final = frozenset(
    {"rate_limited", "payload_too_large", "invalid_payload", "conflict", "slow_consumer"}
)
"""Error codes that do not answer a `subscribe`."""

_SLOT: Final = re.compile(r"(p\d+)\.(\d{1,16})", re.ASCII)
"""The `ref` of one message of a batch that was sent one by one."""


@dataclass(slots=True)
class _Request:
    """A request to subscribe that the peer has not answered.

    Attributes:
        doubts: How often an `error` was attributed to a publish instead of this subscription.
        denied: Patterns that the parts of its answer have denied.
    """

    doubts: int = 0
    denied: set[str] = field(default_factory=set[str])


class PlainDialect:
    """The dialect of one connection.

    Args:
        session: Receives the frames of a current server.
        write: Writes a frame in the peer's format.
    """

    def __init__(self, session: Session, write: Callable[[ClientFrame], None]) -> None:
        self._session = session
        self._write = write
        # Oldest first; includes ended subscriptions.
        self._requests: dict[SubscriptionState, _Request] = {}
        self._blind: deque[str] = deque(maxlen=MAX_BLIND)
        # Unanswered slots of batches that were sent one by one.
        self._batches: WeakKeyDictionary[PublishState, set[int]] = WeakKeyDictionary()
        session.subscriptions.cursors = self._cursor

    def _cursor(self, request: Subscribe, options: SessionOptions) -> Cursor:
        """A cursor by `seq` if the peer numbers messages, otherwise by id."""
        peer = self._session.context.peer
        if peer is None or "seq" in peer.features:
            return SeqCursor(request, options)
        kept = peer.limits.history_max
        return IdCursor(request, options, LIMITS.history_max_messages if kept is None else kept)

    # ---------------------------------------------------------------- from the server

    def receive(self, frame: ServerFrame, at: int) -> None:
        """Pass a frame to the session as a current server would send it."""
        read: ServerFrame | None = frame
        if isinstance(frame, SubscribedFrame):
            read = self._answer(frame)
        elif isinstance(frame, PublishedFrame | ErrorFrame):
            if self._answer_one(frame):
                return
            if isinstance(frame, ErrorFrame):
                read = self._refusal(frame)
        if read is not None:
            self._session.receive(read, at)

    def _answer(self, frame: SubscribedFrame) -> SubscribedFrame:
        """A `subscribed` with the `ref` of the request that it answers.

        Without a `ref` it answers the oldest request with its topics; the topics that it omits are
        denied.
        """
        state = None if frame.ref else self._answered_by(frame)
        if state is None:
            return frame
        before = self._requests[state].denied
        is_open = state.ref in self._session.subscriptions.requests
        if not frame.more or not is_open:
            del self._requests[state]
        if not is_open:
            return frame
        denied = list(frame.denied or ())
        before.update(denial.topic for denial in denied)
        if not frame.more:
            granted = before.union(frame.topics)
            denied += [
                Denial(topic=pattern, code="forbidden")
                for pattern in state.patterns
                if pattern not in granted
            ]
        return frame.model_copy(update={"ref": state.ref, "denied": denied})

    def _answered_by(self, frame: SubscribedFrame) -> SubscriptionState | None:
        topics = set(frame.topics)
        part: SubscriptionState | None = None
        for state in self._requests:
            if topics == set(state.patterns):
                return state
            if part is None and topics and topics < set(state.patterns):
                part = state
        return part

    def _refusal(self, frame: ErrorFrame) -> ErrorFrame | None:
        """An `error` with the `ref` of the request that it is about; None if that has ended."""
        state = None if frame.ref else self._refused_by(frame)
        if state is None:
            return frame
        if state.ref not in self._session.subscriptions.requests:
            return None
        return frame.model_copy(update={"ref": state.ref})

    def _refused_by(self, frame: ErrorFrame) -> SubscriptionState | None:
        """The request that an `error` without a `ref` is about: the oldest with its topic.

        If the error may be about a publish, the subscription is requested again after a while, and
        is rejected in the end.
        """
        topic = frame.topic
        if frame.code in _OF_PUBLISH:
            return None
        for state, request in self._requests.items():
            if topic is not None and topic not in state.patterns:
                continue
            most = MAX_DOUBTS if topic is None else 1
            if request.doubts >= most or not self._may_blame(topic):
                del self._requests[state]
                return state
            if not state.retry_pending:
                request.doubts += 1
                self._session.subscriptions.retry_later(state)
            return None
        return None

    def _may_blame(self, topic: str | None) -> bool:
        """Whether an `error` without a `ref` may be about a publish.

        An error without a topic counts once per publish.
        """
        if topic is not None:
            return topic in self._blind
        if self._blind:
            self._blind.popleft()
            return True
        return False

    def _answer_one(self, frame: PublishedFrame | ErrorFrame) -> bool:
        """Process the answer to one message of a split batch; False if it is not such an answer."""
        found = _SLOT.fullmatch(frame.ref or "")
        if found is None:
            return False
        entry, slot = self._session.publishes.in_flight(found[1]), int(found[2])
        if entry is None or slot not in entry.unanswered():
            return False
        left = self._batches.get(entry, set())
        left.discard(slot)
        session, publishes = self._session, self._session.publishes
        if isinstance(frame, ErrorFrame):
            result = _refused(frame)
        else:
            session.lifecycle.note_useful()
            result = result_of(frame, entry.publish.messages[slot].id)
        publishes.heard()
        publishes.take(entry, {slot: result}, more=bool(left))
        session.end_step()
        return True

    # ---------------------------------------------------------------- from the session

    def send(self, frame: ClientFrame) -> None:
        """Write a frame in the peer's format."""
        peer = self._session.context.peer
        if peer is None:
            self._write(frame)
        elif isinstance(frame, PublishFrame):
            self._publish(frame, peer)
        elif "ref" in peer.features:
            self._write(frame)
        elif isinstance(frame, SubscribeFrame):
            self._remember(frame)
            since = 0 if frame.since is None and frame.history is not None else frame.since
            if peer.plain:
                self._write(SubscribeFrame(topics=frame.topics, since=since))
            else:
                self._write(frame.model_copy(update={"ref": None}))
        elif isinstance(frame, UnsubscribeFrame | PresenceUpdateFrame):
            self._write(frame.model_copy(update={"ref": None}))
        else:
            self._write(frame)

    def _remember(self, frame: SubscribeFrame) -> None:
        state = self._session.subscriptions.requests[frame.ref or ""]
        older = self._requests.pop(state, _Request())
        if len(self._requests) >= MAX_REQUESTS:
            del self._requests[next(iter(self._requests))]
        self._requests[state] = _Request(older.doubts)

    def _publish(self, frame: PublishFrame, peer: Peer) -> None:
        messages = frame.messages
        if peer.acks and ("batch" in peer.features or messages is None):
            self._write(frame)
            return
        every = messages if messages is not None else [m for m in (frame.message,) if m is not None]
        if not peer.acks:
            self._blind.extend(message.topic for message in every)
        if messages is not None and "batch" in peer.features:
            self._write(PublishFrame(messages=messages))
        elif not peer.acks:
            for message in every:
                self._write(PublishFrame(message=message))
        else:
            self._write_one_by_one(frame.ref)

    def _write_one_by_one(self, ref: str | None) -> None:
        entry = self._session.publishes.in_flight(ref)
        if entry is None:
            return
        waiting = entry.unanswered()
        self._batches[entry] = set(waiting)
        for slot in waiting:
            message = entry.publish.messages[slot]
            self._write(PublishFrame(message=message, ref=f"{ref}.{slot}"))


def _refused(frame: ErrorFrame) -> PublishResult:
    """The result of a message, from the error about it."""
    wait = frame.retry_after_ms if frame.code == RATE_LIMITED else None
    error = ErrorInfo(
        code=frame.code,
        message=frame.message,
        remedy=frame.remedy,
        field=frame.field,
        retry_after_ms=wait,
    )
    return PublishResult(error=error)
