"""Publishes beside an event stream: by REST, one request at a time, waiting frames in one batch."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import ConnectionFailed, OperationTimeout, PubSubError
from hanzoai.pubsub.generated.wire import (
    ErrorFrame,
    PresenceUpdateFrame,
    Publication,
    PublishedFrame,
    PublishFrame,
    PublishResult,
)
from hanzoai.pubsub.transports import TransportClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hanzoai.pubsub.generated.wire import ServerFrame
    from hanzoai.pubsub.http.rest import Rest

logger = logging.getLogger("hanzoai.pubsub")

_RUN: Final = 1_000
"""Maximum messages of one request."""

_LOST: Final = frozenset({"connection_failed", "outcome_unknown", "timeout"})
"""Codes that mean only that no answer arrived."""


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
        self._queue: deque[PublishFrame | PresenceUpdateFrame] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """The running task, or None."""
        return () if self._task is None else (self._task,)

    def put(self, frame: PublishFrame | PresenceUpdateFrame) -> None:
        """Queue a frame; the session limits the number of unanswered frames."""
        self._queue.append(frame)
        if self._task is None or self._task.done():
            # Not with the task factory of the loop: a task must not begin before it is assigned.
            self._task = asyncio.Task(self._work(), name="hanzoai.pubsub sse publisher")

    async def _work(self) -> None:
        while self._queue:
            frames: list[PublishFrame | PresenceUpdateFrame] = []
            messages: list[list[Publication]] = []
            count = 0
            while self._queue and (not frames or count < _RUN):
                frame = self._queue.popleft()
                published = publications_of(frame)
                if not published:
                    self._refuse(frame)
                    continue
                frames.append(frame)
                messages.append(published)
                count += len(published)
            if not await self._publish(frames, messages):
                self._queue.clear()

    async def _publish(
        self,
        frames: Sequence[PublishFrame | PresenceUpdateFrame],
        messages: Sequence[Sequence[Publication]],
    ) -> bool:
        row = [message for group in messages for message in group]
        try:
            if len(row) == 1:
                results = [await self._rest.publish(row[0])]
            else:
                results = await self._rest.publish_many(row)
        except (ConnectionFailed, OperationTimeout) as error:
            for frame in frames:
                if frame.ref is None:  # the session does not send it again
                    self._put(error_frame(error, frame))
            self._end(TransportClosed(None, error.message, error.retry_after))
            return False
        except PubSubError as error:
            for frame in frames:
                self._put(error_frame(error, frame))
            return True
        except Exception:
            logger.exception("cannot publish over HTTP beside the event stream")
            self._end(TransportClosed(None, "an unexpected exception in the client"))
            return False
        at = 0
        lost = False
        for frame, group in zip(frames, messages, strict=True):
            part = results[at : at + len(group)]
            at += len(group)
            if frame.ref is not None and self._rest.has_batch and any(map(_is_lost, part)):
                lost = True  # unanswered: the session sends it and all later ones again
            else:
                self._answer(frame, part)
        if lost:
            self._end(TransportClosed(None, "A part of a batch got no answer."))
        return not lost

    def _answer(
        self, frame: PublishFrame | PresenceUpdateFrame, results: Sequence[PublishResult]
    ) -> None:
        first = results[0]
        if isinstance(frame, PublishFrame) and frame.messages is not None:
            self._put(PublishedFrame(results=list(results), ref=frame.ref))
        elif first.error is not None:
            error = first.error
            self._put(
                ErrorFrame(
                    code=error.code,
                    message=error.message,
                    remedy=error.remedy,
                    topic=error.topic,
                    field=error.field,
                    retry_after_ms=error.retry_after_ms,
                    ref=frame.ref,
                )
            )
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

    def _refuse(self, frame: PublishFrame | PresenceUpdateFrame) -> None:
        self._put(
            ErrorFrame(
                code="unsupported",
                message="An event stream without a topic has no presence.",
                remedy="Name a topic, or connect by WebSocket.",
                ref=frame.ref,
            )
        )


def _is_lost(result: PublishResult) -> bool:
    return result.error is not None and result.error.code in _LOST


def publications_of(frame: PublishFrame | PresenceUpdateFrame) -> list[Publication]:
    """Return the messages of a frame in any of its forms; none if it has no topic."""
    if isinstance(frame, PresenceUpdateFrame):
        if frame.topic is None:
            return []
        return [Publication(topic=frame.topic, type="presence.update", data=frame.data)]
    if frame.messages is not None:
        return list(frame.messages)
    if frame.message is not None:
        return [frame.message]
    if frame.topic is None:
        return []
    return [
        Publication(
            topic=frame.topic,
            type=frame.message_type or "message",
            data=frame.data,
            ttl=frame.ttl,
            id=frame.id,
        )
    ]


def error_frame(error: PubSubError, frame: PublishFrame | PresenceUpdateFrame) -> ErrorFrame:
    """Return an exception as the answer to a frame."""
    wait = error.retry_after
    return ErrorFrame(
        code=error.code,
        message=error.message,
        remedy=error.remedy,
        topic=error.topic,
        field=error.field,
        retry_after_ms=None if wait is None else round(wait * 1000),
        ref=frame.ref,
    )
