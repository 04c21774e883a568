"""The environment of a client: clock, randomness, transports; its process and event loop.

A URL ``memory://NAME`` names a server of ``hanzoai.pubsub.testing`` in this process. The client
then uses the server's clock and no socket, so you need not change the program under test.
"""

from __future__ import annotations

import os

# asyncio exports it for implementations of event loops.
from asyncio.events import _get_running_loop  # pyright: ignore[reportPrivateUsage]
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.errors import UsageError
from hanzoai.pubsub.randomness import RANDOM
from hanzoai.pubsub.runtime.threads import load
from hanzoai.pubsub.settings.options import URL_VARIABLE
from hanzoai.pubsub.transports import MEMORY_SCHEME

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    import httpx

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.settings.options import ClientOptions
    from hanzoai.pubsub.transports import Transport
    from hanzoai.pubsub.transports.memory import MemoryPeer

_STAND_IN: Final = "ws://127.0.0.1:1/ws"

_OPENED: Final[set[str]] = set()
"""WebSocket URLs that have worked in this process, for all clients."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment that a client uses."""

    clock: Clock
    random: Callable[[], float]  # from 0 inclusive to 1 exclusive, for the jitter of retries
    peer: MemoryPeer | None = None  # the server in this process; None for a real one
    url: str | None = None  # of this server
    # WebSocket URLs that have worked in this process: a later failure there counts as a network
    # without WebSockets only after HTTP has answered.
    opened: set[str] = field(default_factory=set[str])

    def urls(self, url: str | None, rest_url: str | None) -> tuple[str | None, str | None]:
        """The addresses for the options; a server in this process has none."""
        return (url, rest_url) if self.peer is None else (_STAND_IN, None)

    async def prepare_fallback(self, options: ClientOptions) -> None:
        """Load what an event stream needs, so that to dial it does not stop the event loop."""
        if self.peer is None and options.transport == "auto":
            with suppress(Exception):  # to dial it raises the same
                await load("hanzoai.pubsub.transports.sse", "SseTransport")

    def dial(self, name: TransportName, options: ClientOptions) -> Transport:
        """Create a transport that is not open yet."""
        # Imported when first dialed: a client usually needs only one of them.
        if self.peer is not None:
            from hanzoai.pubsub.transports.memory import MemoryTransport

            return MemoryTransport(self.peer, name)
        if name == "sse":
            from hanzoai.pubsub.transports.sse import SseTransport

            return SseTransport(options, self.clock)
        from hanzoai.pubsub.transports.websocket import WebSocketTransport

        return WebSocketTransport(options, self.clock)

    def http_transport(self) -> httpx.AsyncBaseTransport | None:
        """The transport of HTTP requests, if it is not the network."""
        return None if self.peer is None else self.peer.http_transport()


def environment_for(url: str | None) -> Environment:
    """The environment for a URL, or for the URL in the environment variable."""
    named = url or os.environ.get(URL_VARIABLE)
    if isinstance(named, str) and named.startswith(MEMORY_SCHEME):
        from hanzoai.pubsub.transports.memory import find

        peer = find(named)
        return Environment(peer.clock, peer.random, peer, named)
    return Environment(SystemClock(), RANDOM.random, opened=_OPENED)


running_loop: Final[Callable[[], AbstractEventLoop | None]] = _get_running_loop
"""The running event loop of this thread, if any; a forked process does not inherit one."""

_ONE_PER_LOOP: Final = "Use one client per event loop, or the blocking client `PubSub`."


class ForkedError(UsageError):
    """A client is used in a process that was forked after its first use.

    A separate class, so that leaving a ``with`` block in the child process can ignore it: the
    block of the parent process continues.
    """

    def __init__(self) -> None:
        super().__init__(
            "This client was created before the process forked, and belongs to the parent process.",
            remedy="Create the client in the child process.",
        )


class Owner:
    """The process and the event loop in which a client runs."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._pid = os.getpid()

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one in which the client runs."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Reject a call in another event loop, without one, or in a forked process."""
        running = running_loop()
        if running is self._loop:
            return
        if self.is_foreign:
            raise ForkedError
        if running is None:
            raise no_loop()
        if self._loop.is_closed():
            raise UsageError(
                "The event loop of this client has ended.", code="wrong_loop", remedy=_ONE_PER_LOOP
            )
        raise UsageError(
            "This client runs in another event loop.", code="wrong_loop", remedy=_ONE_PER_LOOP
        )


def no_loop() -> UsageError:
    """The error of a call without a running event loop."""
    return UsageError(
        "No asyncio event loop is running.",
        code="wrong_loop",
        remedy="Call this inside a coroutine that asyncio runs, or use the blocking client "
        "`PubSub`.",
    )


def refuse_copy(value: object, remedy: str) -> NoReturn:
    """Reject `copy` and `pickle` of an object that owns a connection."""
    raise UsageError(f"A {type(value).__name__} cannot be copied or pickled.", remedy=remedy)
