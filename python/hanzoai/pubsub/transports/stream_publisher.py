"""Publishes beside an event stream: by REST, one request at a time, waiting frames in one batch."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hanzoai.pubsub.errors import ConnectionFailed, OperationTimeout, PubSubError
from hanzoai.pubsub.generated.wire import (
    ErrorFrame,
    ErrorInfo,
    PresenceUpdateFrame,
    Publication,
    PublishedFrame,
    PublishFrame,
    PublishResult,
)
from hanzoai.pubsub.http.calls import error_info
from hanzoai.pubsub.transports import TransportClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.generated.wire import ServerFrame
    from hanzoai.pubsub.http.rest import Rest

logger = logging.getLogger("hanzoai.pubsub")

_Outgoing: TypeAlias = PublishFrame | PresenceUpdateFrame

_RUN: Final = 1_000
"""Messages from which on a turn takes no further frame; `Rest` divides them into requests."""

_LOST: Final = frozenset({"connection_failed", "outcome_unknown", "timeout"})
"""Codes that mean only that no answer arrived."""

_NO_TOPIC: Final = ErrorInfo(
    code="unsupported",
    message="An event stream without a topic has no presence.",
    remedy="Name a topic, or connect by WebSocket.",
)


class StreamPublisher:
    """Publishes frames in order, and answers each.

    Args:
        rest: Performs the calls.
        put: Receives the answers.
        end: Ends the transport: the session publishes unanswered frames again.
    """

    def __init__(
        self,
        rest: Rest,
        put: Callable[[ServerFrame], None],
        end: Callable[[TransportClosed], None],
    ) -> None:
        self._rest = rest
        self._put = put
        self._end = end
        self._queue: deque[_Outgoing] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """The running task, or None."""
        return () if self._task is None else (self._task,)

    def put(self, frame: _Outgoing) -> None:
        """Queue a frame; the session limits the number of unanswered frames."""
        self._queue.append(frame)
        if self._task is None or self._task.done():
            # Not with the task factory of the loop: a task must not begin before it is assigned.
            self._task = asyncio.Task(self._work(), name="hanzoai.pubsub sse publisher")

    async def _work(self) -> None:
        while self._queue:
            row: list[tuple[_Outgoing, list[Publication]]] = []
            count = 0
            while self._queue and (not row or count < _RUN):
                frame = self._queue.popleft()
                if messages := publications_of(frame):
                    row.append((frame, messages))
                    count += len(messages)
                else:
                    self._refuse(frame, _NO_TOPIC)
            if not await self._publish(row):
                self._queue.clear()

    async def _publish(self, row: Sequence[tuple[_Outgoing, list[Publication]]]) -> bool:
        every = [message for _, messages in row for message in messages]
        try:
            if len(every) == 1:
                results = [await self._rest.publish(every[0])]
            else:
                results = await self._rest.publish_many(every)
        except PubSubError as error:
            lost = isinstance(error, ConnectionFailed | OperationTimeout)
            for frame, _ in row:
                if not lost or frame.ref is None:  # the session does not send it again
                    self._refuse(frame, error_info(error))
            if lost:
                self._end(TransportClosed(None, error.message, error.retry_after))
            return not lost
        except Exception:
            logger.exception("cannot publish over HTTP beside the event stream")
            self._end(TransportClosed(None, "an unexpected exception in the client"))
            return False
        at = 0
        lost = False
        for frame, messages in row:
            part = results[at : at + len(messages)]
            at += len(messages)
            if frame.ref is not None and self._rest.has_batch and any(map(_is_lost, part)):
                lost = True  # unanswered: the session sends it and all later ones again
            else:
                self._answer(frame, part)
        if lost:
            self._end(TransportClosed(None, "A part of a batch got no answer."))
        return not lost

    def _answer(self, frame: _Outgoing, results: Sequence[PublishResult]) -> None:
        first = results[0]
        if isinstance(frame, PublishFrame) and frame.messages is not None:
            self._put(PublishedFrame(results=list(results), ref=frame.ref))
        elif first.error is not None:
            self._refuse(frame, first.error)
        else:
            self._put(
                PublishedFrame(
                    id=first.id,
                    timestamp=first.timestamp,
                    seq=first.seq,
                    duplicate=first.duplicate,
                    ref=frame.ref,
                )
            )

    def _refuse(self, frame: _Outgoing, error: ErrorInfo) -> None:
        # The error of a peer may have a type of its own: that of a problem.
        answer: dict[str, Any] = {**error.model_dump(), "type": "error", "ref": frame.ref}
        self._put(ErrorFrame(**answer))


def _is_lost(result: PublishResult) -> bool:
    return result.error is not None and result.error.code in _LOST


def publications_of(frame: _Outgoing) -> list[Publication]:
    """Return the messages of a frame; none if it has no topic."""
    if isinstance(frame, PublishFrame):
        single = () if frame.message is None else (frame.message,)
        return list(frame.messages or single)
    if frame.topic is None:
        return []
    return [Publication(topic=frame.topic, type="presence.update", data=frame.data)]
