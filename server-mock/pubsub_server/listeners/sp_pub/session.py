"""One SP subscriber: it says hello and nothing more, and gets everything that it may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.sp.codec import Decoder, Role, encode_hello
from pubsub_server.listeners.byte_session import ByteSession
from pubsub_server.shared.requests import SubscribeRequest

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Coroutine

    from pubsub_server.listeners.sp_pub.listener import SpListener

EVERYTHING = "**"


class SpSession(ByteSession[bytes]):
    """See `byte_session.ByteSession`.

    Args:
        listener: What all connections share.
    """

    def __init__(self, listener: SpListener) -> None:
        self._hello = Decoder(Role.PUB, listener.framing)
        super().__init__(listener, self._hello)
        self._sp = listener
        self._subscribed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`: both sides begin with a hello."""
        super().connection_made(transport)
        self.write(encode_hello(Role.PUB))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        if self._hello.greeted and not self._subscribed and not self.closing:
            self._subscribed = True
            self._subscribe()

    def handle(self, requests: deque[bytes]) -> Coroutine[Any, Any, None] | None:
        """See `byte_session.ByteSession`: a subscriber has no requests."""
        requests.clear()
        return None

    def left(self) -> None:
        """See `byte_session.ByteSession`."""

    def overdue(self, now: float) -> str | None:
        """See `byte_session.ByteSession`."""
        return None if self._hello.greeted else "no_hello"

    def _subscribe(self) -> None:
        listener = self._sp
        if listener.policy.may_subscribe_pattern(self.identity, EVERYTHING):
            request = SubscribeRequest((EVERYTHING,), presence=False)
            listener.service.subscribe(self.connection, request)
        else:
            listener.service.note("subscribe", self.connection, EVERYTHING, "forbidden")
