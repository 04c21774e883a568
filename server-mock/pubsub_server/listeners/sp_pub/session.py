"""One SP subscriber: it only sends a hello, and receives everything that it may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.sp.codec import Decoder, Role, encode_hello
from pubsub_server.listeners.byte_session import ByteSession
from pubsub_server.shared.requests import SubscribeRequest

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Coroutine, Sequence

    from hanzoai.pubsub.sp.codec import Framing
    from pubsub_server.listeners.byte_connections import ByteConnections

EVERYTHING = "**"


class Hellos:
    """Reads the hello of one subscriber as its only request.

    Args:
        framing: Framing of the transport.
    """

    def __init__(self, framing: Framing) -> None:
        self._decoder = Decoder(Role.PUB, framing)
        self._taken = False
        self.feed = self._decoder.feed

    @property
    def greeted(self) -> bool:
        """Whether a valid hello has arrived."""
        return self._decoder.greeted

    @property
    def pending(self) -> int:
        """See `byte_session.Decoder`."""
        return self._decoder.pending

    def decode(self, limit: int = -1) -> Sequence[None]:
        """See `byte_session.Decoder`."""
        self._decoder.decode(limit)
        if self._taken or not self._decoder.greeted:
            return ()
        self._taken = True
        return (None,)


class SpSession(ByteSession[None]):
    """See `byte_session.ByteSession`.

    Args:
        shared: What all connections share.
        framing: Framing of the transport.
    """

    def __init__(self, shared: ByteConnections, framing: Framing) -> None:
        self._hellos = Hellos(framing)
        super().__init__(shared, self._hellos)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`: both sides begin with a hello."""
        super().connection_made(transport)
        self.write(encode_hello(Role.PUB))

    def handle(self, requests: deque[None]) -> Coroutine[Any, Any, None] | None:
        """See `byte_session.ByteSession`: a hello subscribes to everything."""
        requests.clear()
        shared = self._shared
        if shared.policy.may_subscribe_pattern(self.identity, EVERYTHING):
            request = SubscribeRequest((EVERYTHING,), presence=False)
            shared.service.subscribe(self.connection, request)
        else:
            shared.service.note("subscribe", self.connection, EVERYTHING, "forbidden")
            shared.warn_denied("read", self.identity, EVERYTHING)
        return None

    def left(self) -> None:
        """See `byte_session.ByteSession`."""

    def overdue(self, now: float) -> str | None:
        """See `byte_session.ByteSession`."""
        return None if self._hellos.greeted else "no_hello"
