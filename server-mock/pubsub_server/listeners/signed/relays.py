"""Relayed topics: one upstream per topic and broker, shared by the sockets of this node."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from pubsub_server.listeners.signed.modes import GSOC
from pubsub_server.listeners.signed.upstreams import UpstreamError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pubsub_server.listeners.signed.addresses import Asked, BrokerAddress
    from pubsub_server.listeners.signed.modes import Parameters
    from pubsub_server.listeners.signed.upstreams import Upstream
    from pubsub_server.tasks import Tasks

_LOG: Final = logging.getLogger(__name__)


class Listening(Protocol):
    """A socket that listens to a relay."""

    def relayed(self, frame: bytes) -> None:
        """A message has arrived from the broker."""
        ...

    def cut_off(self, reason: str) -> None:
        """The upstream has ended."""
        ...


class Relay:
    """One topic of one broker.

    Attributes:
        topic: Address, 32 bytes.
        peer: The broker; None for the node's own upstream.
        count: Number of sockets that hold it.
    """

    def __init__(self, asked: Asked) -> None:
        self.topic = asked.topic
        self.peer = asked.peer
        self.count = 0
        self.upstream: Upstream | None = None
        self.reading: asyncio.Task[None] | None = None
        self.parameters: Parameters | None = None
        self.opening = asyncio.Lock()
        self.ended = False
        self._sockets: dict[Listening, None] = {}

    def check(self) -> None:
        """Raise if the upstream has ended.

        Raises:
            UpstreamError: The upstream has ended.
        """
        if self.ended:
            raise UpstreamError("the broker has closed the stream")

    def add(self, socket: Listening) -> None:
        """Pass messages to this socket from now on."""
        self._sockets[socket] = None

    def discard(self, socket: Listening) -> None:
        """Stop passing messages to this socket."""
        self._sockets.pop(socket, None)

    @property
    def sockets(self) -> tuple[Listening, ...]:
        """The current listeners."""
        return tuple(self._sockets)

    async def send(self, frame: bytes) -> None:
        """Publish a frame.

        Raises:
            UpstreamError: The upstream has ended.
        """
        async with self.opening:
            upstream = self.upstream
        if upstream is None:
            raise UpstreamError("the broker has closed the stream")
        await upstream.send(frame)


class Relays:
    """The relays of a node.

    Args:
        tasks: Runs the readers.
        dial: Opens an upstream.
        forged: Called when a broker sends a message that its topic's owner has not signed.
        known: Id and owner of topics, for brokers that do not send them; by address.
    """

    def __init__(
        self,
        tasks: Tasks,
        dial: Callable[[Asked], Awaitable[Upstream]],
        forged: Callable[[], None],
        known: Mapping[bytes, Parameters],
    ) -> None:
        self._tasks = tasks
        self._dial = dial
        self._forged = forged
        self._known = known
        self._relays: dict[tuple[bytes, BrokerAddress | None], Relay] = {}

    @property
    def open(self) -> tuple[Relay, ...]:
        """The relays with an open upstream."""
        return tuple(each for each in self._relays.values() if each.upstream is not None)

    async def enter(self, asked: Asked) -> Relay:
        """Hold the relay of a topic, and open its upstream if necessary.

        An upstream that only reads is replaced when the first publisher comes. Call `leave` once
        for each relay that this returns.

        Raises:
            UpstreamError: The broker cannot be reached, or refuses the request.
        """
        key = (asked.topic, asked.peer)
        relay = self._relays.get(key)
        if relay is None:
            relay = self._relays[key] = Relay(asked)
        relay.count += 1
        try:
            async with relay.opening:
                relay.check()
                joins = asked.parameters is not None and relay.parameters is None
                if relay.upstream is None or joins:
                    await self._open(relay, asked)
        except BaseException:
            self.leave(relay)
            raise
        return relay

    def leave(self, relay: Relay) -> None:
        """Release a relay; the last one closes its upstream."""
        relay.count -= 1
        if relay.count == 0:
            self._forget(relay)
            self._close(relay)

    async def _open(self, relay: Relay, asked: Asked) -> None:
        upstream = await self._dial(asked)
        before, reading = relay.upstream, relay.reading
        relay.upstream = upstream
        relay.parameters = asked.parameters or relay.parameters
        relay.reading = self._tasks.spawn(self._read(relay, upstream))
        if reading is not None:
            reading.cancel()
        if before is not None:
            self._tasks.spawn(before.close())

    async def _read(self, relay: Relay, upstream: Upstream) -> None:
        parameters = relay.parameters or self._known.get(relay.topic)
        reason = "the broker has closed the stream"
        try:
            async for frame, named in upstream.messages():
                if named is not None:
                    GSOC.check(relay.topic, named)
                    parameters = named
                if parameters is not None:
                    GSOC.verify(frame, parameters)
                for socket in relay.sockets:
                    socket.relayed(frame)
        except UpstreamError as error:
            reason = str(error)
        except ValueError:
            reason = "the broker sent a message that the topic's owner has not signed"
            self._forged()
        except Exception:
            # Close its sockets: their messages are no longer read.
            reason = "the messages of the broker cannot be relayed"
            _LOG.exception("closing the upstream of a signed topic")
        if relay.peer is not None or relay.topic not in self._known:  # mirrors log their own
            _LOG.warning(
                "%s no longer relays signed.%s, and this server closes the %d sockets of the topic"
                " with 1013: %s; check that the broker is running and reachable from this server",
                relay.peer or "the Bee node of signed_upstream",
                relay.topic.hex(),
                len(relay.sockets),
                reason,
            )
        relay.ended = True
        self._forget(relay)
        self._close(relay)
        for socket in relay.sockets:
            socket.cut_off(reason)

    def _forget(self, relay: Relay) -> None:
        key = (relay.topic, relay.peer)
        if self._relays.get(key) is relay:
            del self._relays[key]

    def _close(self, relay: Relay) -> None:
        upstream, relay.upstream = relay.upstream, None
        reading, relay.reading = relay.reading, None
        if reading is not None:
            reading.cancel()
        if upstream is not None:
            # It may read, too, so after the cancelled task.
            self._tasks.spawn(upstream.close())
