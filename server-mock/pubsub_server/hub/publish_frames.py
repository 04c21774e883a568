"""`publish` on a connection: performed, and answered with `published` or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pubsub_server.errors import ServiceError
from pubsub_server.interfaces import Published
from pubsub_server.shared.codec import error_frame, error_info
from pubsub_server.shared.requests import PublishRequest

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from pubsub_server.hub.core import Core
    from pubsub_server.hub.publishing import Publishing
    from pubsub_server.interfaces import Identity
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.requests import PlainPublish, Ref


class PublishFrames:
    """Performs the publishes of all connections.

    Args:
        core: The parts of the hub.
        publishing: Publishes.
        spawn: Runs what must wait in a task.

    Attributes:
        unanswered: Publishes under way.
    """

    def __init__(
        self,
        core: Core,
        publishing: Publishing,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._core = core
        self._publishing = publishing
        self._spawn = spawn
        self.unanswered: set[asyncio.Task[None]] = set()

    def plain(self, connection: Connection, identity: Identity, asked: PlainPublish) -> None:
        """Perform a plain one.

        Raises:
            ServiceError: It cannot be performed.
        """
        waits = asked.ref is not None
        outcome = self._publishing.one(identity, asked.draft, connection, asked=waits)
        if isinstance(outcome, Published | ServiceError):
            self._answer_one(connection, outcome, asked.ref)
        else:
            self._await(connection, PublishRequest([asked.draft], False, asked.ref), outcome)

    def any(self, connection: Connection, identity: Identity, asked: PublishRequest) -> None:
        """Perform one in any form, a batch too.

        Raises:
            ServiceError: It cannot be performed.
        """
        most = self._core.settings.max_batch
        if len(asked.items) > most:
            raise ServiceError(
                "invalid_frame", f"a batch has at most {most} messages", field="messages"
            )
        waits = asked.ref is not None
        results = self._publishing.publish(identity, asked.items, connection, asked=waits)
        if isinstance(results, list):
            self._answer(connection, asked, results)
        else:
            self._await(connection, asked, results)

    def _await(
        self,
        connection: Connection,
        asked: PublishRequest,
        results: Awaitable[list[Published | ServiceError]],
    ) -> None:
        task = self._spawn(self._answer_later(connection, asked, results))
        self.unanswered.add(task)
        task.add_done_callback(self.unanswered.discard)

    async def _answer_later(
        self,
        connection: Connection,
        asked: PublishRequest,
        results: Awaitable[list[Published | ServiceError]],
    ) -> None:
        try:
            self._answer(connection, asked, await results)
        except ServiceError as error:
            self._core.refuse(connection, error, asked.ref)

    def _answer(
        self,
        connection: Connection,
        asked: PublishRequest,
        results: Sequence[Published | ServiceError],
    ) -> None:
        ref = asked.ref
        if asked.batch and ref is not None:
            frame = {
                "type": "published",
                "results": [_result(result) for result in results],
                "ref": ref,
            }
            self._core.send(connection, frame)
            return
        for result in results:
            self._answer_one(connection, result, ref)

    def _answer_one(
        self, connection: Connection, result: Published | ServiceError, ref: Ref
    ) -> None:
        if isinstance(result, ServiceError):
            # Counted where it was refused.
            self._core.send(connection, error_frame(result, ref))
        elif ref is not None:
            frame = {"type": "published", **_result(result), "ref": ref}
            self._core.send(connection, frame)


def _result(result: Published | ServiceError) -> dict[str, object]:
    """`PublishResult` of the schema."""
    if isinstance(result, ServiceError):
        return {"error": error_info(result)}
    fields: dict[str, object] = {"id": result.id, "timestamp": result.timestamp}
    if result.seq is not None:
        fields["seq"] = result.seq
    fields["duplicate"] = result.duplicate
    return fields
