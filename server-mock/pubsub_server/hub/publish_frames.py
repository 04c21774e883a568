"""Performs `publish` on a connection, and answers with `published` or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.errors import ServiceError
from pubsub_server.hub.draining import Unanswered
from pubsub_server.shared.codec import error_frame, publish_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pubsub_server.backplane import Published
    from pubsub_server.hub.core import Core
    from pubsub_server.hub.publishing import Publishing
    from pubsub_server.interfaces import Identity
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.requests import PublishRequest


class PublishFrames:
    """Performs the publishes of all connections.

    Args:
        core: The parts of the hub.
        publishing: Publishes.

    Attributes:
        unanswered: Publishes in progress.
    """

    def __init__(self, core: Core, publishing: Publishing) -> None:
        self._core = core
        self._publishing = publishing
        self.unanswered = Unanswered()

    def perform(self, connection: Connection, identity: Identity, asked: PublishRequest) -> None:
        """Perform one message or a batch.

        Raises:
            ServiceError: It cannot be performed.
        """
        most = self._core.settings.max_batch
        if len(asked.items) > most:
            raise ServiceError(
                "invalid_frame", f"a batch has at most {most} messages", field="messages"
            )
        answer = _Answer(self, connection, asked)
        waits = asked.ref is not None
        self._publishing.publish(identity, asked.items, connection, answer, asked=waits)
        if not answer.given:
            answer.waiting = True
            self.unanswered.begin(answer)

    def answer(
        self,
        connection: Connection,
        asked: PublishRequest,
        results: Sequence[Published | ServiceError],
    ) -> None:
        """Send the results of a request to its connection."""
        ref = asked.ref
        if asked.batch and ref is not None:
            frame: dict[str, object] = {
                "type": "published",
                "results": [publish_result(result) for result in results],
                "ref": ref,
            }
            self._core.send(connection, frame)
            return
        for result in results:
            if isinstance(result, ServiceError):
                # It is counted at its rejection.
                self._core.send(connection, error_frame(result, ref))
            elif ref is not None:
                frame = {"type": "published", **publish_result(result), "ref": ref}
                self._core.send(connection, frame)


class _Answer:
    """The answer to one request, called with its results.

    A closure that removes itself from `unanswered` would be a reference cycle, which costs a
    garbage collection per some dozens of publishes.
    """

    __slots__ = ("_asked", "_connection", "_frames", "given", "waiting")

    def __init__(
        self, frames: PublishFrames, connection: Connection, asked: PublishRequest
    ) -> None:
        self._frames = frames
        self._connection = connection
        self._asked = asked
        self.given = False
        self.waiting = False

    def __call__(self, results: Sequence[Published | ServiceError]) -> None:
        self.given = True
        if self.waiting:
            self._frames.unanswered.end(self)
        self._frames.answer(self._connection, self._asked, results)
