"""`MemoryServer`: the real hub of the reference server, in this process, without a socket.

Replaces only the listeners: frames go directly from the client's transport to the hub and back.
Rules, history, positions, presence, limits and re-authentication are those of the server itself.
Needs the extra ``[server]``; without it, the constructor raises `UsageError`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, Self, cast, get_args, overload

from typing_extensions import TypeVar

from hanzoai.pubsub.client import PubSubClient
from hanzoai.pubsub.errors import InvalidPayload, UsageError
from hanzoai.pubsub.generated.wire import ServerFrame
from hanzoai.pubsub.runtime.environment import running_loop
from hanzoai.pubsub.settings.checks import check_choice, check_whole
from hanzoai.pubsub.settings.checks import kind as kind_of
from hanzoai.pubsub.testing.clock import VirtualClock
from hanzoai.pubsub.testing.kinds import Kind
from hanzoai.pubsub.testing.link import Link
from hanzoai.pubsub.testing.standstill import Standstill, report
from hanzoai.pubsub.transports import TransportFailed, memory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from os import PathLike

    import httpx

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.testing.hub import MemoryHub
    from hanzoai.pubsub.values import Published

_KEPT: Final = 10_000
_FRAMES: Final = tuple(
    str(frame.model_fields["type"].default)
    for frame in get_args(get_args(ServerFrame.__value__)[0])
)
"""Types of the frames that a server sends."""
_names: Final = itertools.count(1)


C = TypeVar("C", bound="Clock", default=VirtualClock)


class _Client(PubSubClient):
    """A client that the server closes: a test that drops it causes no warning."""

    _warns = False


class MemoryServer(Generic[C]):
    """An in-memory server for tests. Every client in this process can reach it by its ``url``.

    ::

        async with MemoryServer() as server:
            ps = server.client()
            sub = await ps.subscribe("chat.1")
            await server.publish("chat.1", {"type": "token", "data": {"content": "Hi"}})
            message = await anext(sub)
            server.cut()  # the connection breaks
            await server.clock.advance(30)  # the client reconnects; no real time passes

    Args:
        clock: Clock of the server and its clients; default: a ``VirtualClock``, which only the test
            moves. With ``SystemClock()``, both run in real time.
        rules: Path of a file with access rules; default: every client may do everything.
        seed: Seed for the jitter of the clients' retries.
        **settings: Settings of the server by name, for example ``history_max_messages=10``.

    Attributes:
        url: URL for ``url`` of a client, or for ``HANZO_PUBSUB_URL``.
        received: Frames that clients sent, newest last, without tokens; at most 10,000.
        attempts: Transports that clients dialed, newest last; at most 10,000.
        tell: Called once for each standstill: something waits for virtual time, and the clock has
            not moved for five real seconds. Default: writes to standard
            error, in pytest past its capture.
        random: Source of the jitter, made from ``seed``.

    Raises:
        UsageError: The server is not installed.
    """

    @overload
    def __init__(
        self: MemoryServer[VirtualClock],
        *,
        clock: None = None,
        rules: str | PathLike[str] | None = None,
        seed: int = 0,
        **settings: object,
    ) -> None: ...

    @overload
    def __init__(
        self,
        *,
        clock: C,
        rules: str | PathLike[str] | None = None,
        seed: int = 0,
        **settings: object,
    ) -> None: ...

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        rules: str | PathLike[str] | None = None,
        seed: int = 0,
        **settings: object,
    ) -> None:
        self.clock: C = cast("C", VirtualClock() if clock is None else clock)
        self.random: Callable[[], float] = random.Random(seed).random  # noqa: S311
        self.received: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.attempts: deque[TransportName] = deque(maxlen=_KEPT)
        self.url = ""
        self._name = f"server-{next(_names)}"
        self._rules = rules
        self._settings = settings
        self._hub: MemoryHub | None = None
        self._links: set[Link] = set()
        self._clients: list[PubSubClient] = []
        self._refusal: TransportFailed | None = None
        self._refused: TransportName | None = None
        self._frozen = False
        self._losing: dict[str, int] = {}
        self.tell: Callable[[str], None] = report
        self._standstill: Standstill | None = None

    # ------------------------------------------------------------ start and stop

    async def start(self) -> Self:
        """Start the server; clients can then reach it by ``url``.

        Raises:
            UsageError: No asyncio event loop is running, or the reference server is not installed.
        """
        if running_loop() is None:
            raise UsageError(
                "No asyncio event loop is running.",
                code="wrong_loop",
                remedy="Start the server in a coroutine that asyncio runs. With the pytest plugin "
                'of anyio, let the fixture `anyio_backend` return "asyncio".',
            )
        if self._hub is None:
            try:
                from hanzoai.pubsub.testing.hub import MemoryHub
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] != "pubsub_server":
                    raise
                raise UsageError(
                    "The reference server is not installed.",
                    remedy="Install it: pip install 'hanzoai.pubsub[server]'.",
                    cause=error,
                ) from None
            self._hub = MemoryHub(self.clock, self._rules, self._settings)
            self.url = memory.register(self._name, self)
            if isinstance(self.clock, VirtualClock):
                later = asyncio.get_running_loop().call_later
                self._standstill = Standstill(
                    self.clock, later, lambda sentence: self.tell(sentence)
                )
                self._standstill.start()
        return self

    async def stop(self) -> None:
        """Close the clients that ``client()`` has created, and stop."""
        self._frozen = False
        if self._standstill is not None:
            self._standstill.stop()
        for client in self._clients:
            await client.close(0)
        memory.forget(self._name)
        hub, self._hub = self._hub, None
        if hub is not None:
            for link in list(self._links):
                link.cut(1001, "the server has stopped")
            await hub.close()

    def __repr__(self) -> str:
        return f"<MemoryServer {self.url or 'not running'}>"

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------ clients, tokens and publishes

    def client(self, token: str | None = None, **options: Any) -> PubSubClient:
        """Return a client of this server, which is closed with it.

        Args:
            token: Default: the token of a service, unless ``get_token`` is given.
            **options: Options of ``PubSubClient``.
        """
        if token is None and "get_token" not in options:
            token = self.token("tests", kind="service")
        client = _Client(self.url, token, **options)
        self._clients.append(client)
        return client

    def token(
        self,
        user: str = "alice",
        *,
        kind: Kind = "user",
        ttl: float | None = None,
        orgs: Sequence[str] = (),
        name: str | None = None,
        sessions_owned: Sequence[str] = (),
        sessions_shared: Sequence[str] = (),
        agents: Sequence[str] = (),
    ) -> str:
        """Return a token that this server accepts.

        Args:
            user: The user id.
            kind: ``user``, ``service``, ``admin`` or ``agent``.
            ttl: Seconds of ``clock`` until it expires; None: never.
            orgs: Organizations of the user.
            name: Display name.
            sessions_owned: Chat sessions the user owns.
            sessions_shared: Chat sessions shared with the user.
            agents: Agents the user has access to.

        Raises:
            InvalidOption: ``kind`` is unknown.
        """
        check_choice("kind", kind, get_args(Kind))
        return self._running.tokens.make(
            user,
            kind=kind,
            ttl=ttl,
            name=name,
            orgs=orgs,
            sessions_owned=sessions_owned,
            sessions_shared=sessions_shared,
            agents=agents,
        )

    async def publish(
        self, topic: str, message: Mapping[str, Any], *, seconds: float = 0
    ) -> Published:
        """Publish as a service, without any client.

        Args:
            topic: The topic.
            message: ``{"type", "data"}``, optionally ``ttl``, ``id``, ``meta``.
            seconds: Seconds to wait before publishing.
        """
        if seconds:
            await self.clock.sleep(seconds)
        # Callers without a type checker may pass any value.
        if not isinstance(cast("object", message), Mapping):
            raise InvalidPayload(
                f"The message is {kind_of(message)}, not a mapping.",
                remedy='Publish {"type": ..., "data": ...}.',
                field="message",
            )
        return await self._running.publish(topic, message)

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._links)

    @property
    def stats(self) -> Any:
        """Counters of the hub (``pubsub_server.interfaces.Stats``)."""
        return self._running.hub.stats

    # ------------------------------------------------------------ faults

    def cut(self, code: int | None = None, reason: str = "") -> int:
        """Break every connection.

        Args:
            code: Close code of the server; None breaks connections as a network failure does, and
                loses data in transit.
            reason: Description of the reason.

        Returns:
            The number of connections.
        """
        links = list(self._links)
        for link in links:
            link.cut(code, reason)
        return len(links)

    @contextmanager
    def refusing(
        self,
        code: int | None = None,
        reason: str = "refused by the test",
        *,
        retry_after: float | None = None,
        transport: TransportName | None = None,
    ) -> Generator[None]:
        """Break every connection, and reject new ones inside the ``with`` block.

        Args:
            code: Close code of new connections; None: like a network that is down.
            reason: Description of the reason.
            retry_after: Seconds that the server asks clients to wait.
            transport: Reject only connections of this transport.
        """
        self._refusal = TransportFailed(code, reason, retry_after)
        self._refused = transport
        for link in list(self._links):
            if transport in (None, link.transport):
                link.cut(None, reason)
        try:
            yield
        finally:
            self._refusal = None

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Deliver nothing in either direction inside the ``with`` block; connections stay open."""
        self._frozen = True
        try:
            yield
        finally:
            self._frozen = False
            for link in list(self._links):
                link.thaw()

    def lose_next(self, type: str, count: int = 1) -> None:
        """Lose the next frames of a type on their way to clients, for example ``published``.

        Raises:
            InvalidOption: Servers do not send frames of this type, or the count is below 1.
        """
        check_choice("type", type, _FRAMES)
        check_whole("count", count)
        self._losing[type] = self._losing.get(type, 0) + count

    def lose_nothing(self) -> None:
        """End the effect of ``lose_next``."""
        self._losing.clear()

    def forget_history(self, topic: str | None = None, *, positions: bool = False) -> None:
        """Remove retained messages, as trimming does.

        Args:
            topic: Only of this topic; None: of all topics.
            positions: Whether the numbering also starts again, as after the loss of the whole log.
        """
        self._running.hub.core.backplane.logs.evict(topic, log_too=positions)

    def expire_tokens(self) -> None:
        """Expire every token that was created so far.

        An open connection notices it when it authenticates again, for example after ``cut()``.
        """
        self._running.tokens.expire_all()

    # ------------------------------------------------------------ the memory transport's peer

    async def accept(
        self, client: memory.MemoryTransport, transport: TransportName
    ) -> memory.MemoryEnd:
        """See ``MemoryPeer``."""
        hub = self._running
        while self._frozen:
            await asyncio.get_running_loop().create_future()
        self.attempts.append(transport)
        if self._refusal is not None and self._refused in (None, transport):
            refusal = self._refusal
            raise TransportFailed(refusal.code, refusal.reason, refusal.retry_after)
        link = Link(self, client, transport)
        self._links.add(link)
        link.open(hub.hub)
        return link

    def http_transport(self) -> httpx.AsyncBaseTransport:
        """See ``MemoryPeer``."""
        return self._running.http

    # ------------------------------------------------------------ for links

    @property
    def is_frozen(self) -> bool:
        """Whether no data passes in either direction."""
        return self._frozen

    def takes(self, type: str) -> bool:
        """Return whether a frame of this type may arrive; counts frames that are to be lost."""
        left = self._losing.get(type, 0)
        if left:
            self._losing[type] = left - 1
        return not left

    def note(self, frame: dict[str, Any]) -> None:
        """Keep a frame of a client for the test to look at."""
        if frame.get("type") == "auth":
            frame = {**frame, "token": "..."}
        self.received.append(frame)

    def gone(self, link: Link) -> None:
        """A connection has ended."""
        self._links.discard(link)

    @property
    def _running(self) -> MemoryHub:
        if self._hub is None:
            raise UsageError(
                "The server is not running.", remedy="Use `async with MemoryServer()`."
            )
        return self._hub


__all__ = ["MemoryServer"]
