"""Endpoints: answer other paths of the WebSocket port than `/ws`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from pubsub_server.interfaces import Sink
    from pubsub_server.shared.connection import Connection


@dataclass(frozen=True, slots=True)
class Visit:
    """A request on the port.

    Attributes:
        path: Without its query.
        query: What follows `?`.
        headers: By name in lower case.
    """

    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response with a JSON body."""

    status: int
    body: bytes


class RefusedError(Exception):
    """The upgrade is rejected.

    Attributes:
        answer: The response.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Receiver(Protocol):
    """The endpoint's side of an open WebSocket.

    Attributes:
        connection: Of the hub.
    """

    connection: Connection

    def begin(self) -> None:
        """The upgrade has been answered; bytes may be sent."""
        ...

    def receive(self, data: bytes) -> None:
        """Handle one message, text or binary. Never raises."""
        ...

    def gone(self) -> None:
        """The WebSocket has ended, or was never opened."""
        ...


class Endpoint(Protocol):
    """Answers requests below some paths."""

    def handles(self, path: str) -> bool:
        """Whether this endpoint handles the path."""
        ...

    def get(self, visit: Visit) -> Answer:
        """Answer a plain request."""
        ...

    async def join(self, visit: Visit, sink: Sink) -> Receiver:
        """Prepare a WebSocket. The upgrade is answered after this returns.

        Raises:
            RefusedError: The upgrade is rejected.
        """
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        """Run a coroutine in a task of this endpoint."""
        ...
