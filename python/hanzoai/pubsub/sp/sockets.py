"""PUB and SUB sockets for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Self

from hanzoai.pubsub.durations import positive_seconds, seconds_of, waits_of
from hanzoai.pubsub.errors import InvalidOption, OperationTimeout
from hanzoai.pubsub.links.connections import Backoff
from hanzoai.pubsub.sp.addresses import Address, parse_address
from hanzoai.pubsub.sp.arguments import at_least_one, message_bytes, prefix_bytes
from hanzoai.pubsub.sp.codec import MAX_MESSAGE_SIZE, Framing, Role
from hanzoai.pubsub.sp.endpoints import Dialer, Listener
from hanzoai.pubsub.sp.errors import Closed, NotFound, NotSupported
from hanzoai.pubsub.sp.inbox import Inbox
from hanzoai.pubsub.sp.pipe import Pipe
from hanzoai.pubsub.sp.prefixes import Prefixes
from hanzoai.pubsub.sp.stats import SocketStats
from hanzoai.pubsub.sp.wires import StreamWire, WebSocketWire

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Generator

    from hanzoai.pubsub.durations import Duration
    from hanzoai.pubsub.links.unparsed import Bytes
    from hanzoai.pubsub.sp.wires import Wire

_HELLO_TIMEOUT: Final = 10.0
_RECONNECT_MIN: Final = 0.1
_RECONNECT_MAX: Final = 10.0


class Turn:
    """Result of a method that has already done its work. You need not await it.

    Awaiting it gives the other tasks of the event loop a turn.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None]:
        yield


_TURN: Final = Turn()


class Socket:
    """The part that PUB and SUB share: addresses, connections, counters and closing.

    A socket belongs to the event loop in which it first listens or dials. Use the sockets of
    `hanzoai.pubsub.sp.blocking` to share a socket between threads.
    """

    role: ClassVar[Role]

    def __init__(
        self,
        *,
        inbox: Inbox | None,
        queue_size: int,
        max_message_size: int,
        hello_timeout: Duration,
        reconnect_min: Duration,
        reconnect_max: Duration,
    ) -> None:
        self.inbox = inbox
        self.hello_timeout = positive_seconds(hello_timeout, "hello_timeout")
        self._queue_size = queue_size
        self._max_message_size = at_least_one("max_message_size", max_message_size)
        self._reconnect = waits_of(reconnect_min, reconnect_max)
        self._listeners: list[Listener] = []
        self._dialers: list[Dialer] = []
        self._open: set[Pipe] = set()
        self._pipes: dict[str, dict[Pipe, None]] = {}
        self._peers = 0
        self._changed = asyncio.Event()
        self._refused: Counter[str] = Counter()
        self._lost = 0
        self._sent = 0
        self._filtered = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    async def listen(self, url: str, ssl: ssl.SSLContext | None = None) -> str:
        """Accept peers at an address; a socket may have several.

        Args:
            url: ``tcp://HOST:PORT``, ``ipc://PATH``, ``abstract://NAME`` (Linux),
                ``tls+tcp://HOST:PORT``, ``ws://HOST:PORT/PATH`` or ``wss://…``. Port 0 lets the
                system choose, and the host ``*`` means every IPv4 address. An existing socket file
                is replaced if no program listens on it.
            ssl: Certificate and key, for ``tls+tcp`` and ``wss``.

        Returns:
            The URL that peers dial, with the port that the system chose.

        Raises:
            InvalidOption: The URL or `ssl` cannot be used.
            OSError: The address is in use, or cannot be bound.
            Closed: The socket is closed.
        """
        self._check()
        address = parse_address(url)
        listener = await Listener.open(
            address, url, lambda: self._pipe(address, None), ssl, self.hello_timeout
        )
        if self._closed:
            await listener.close()
            raise Closed
        self._listeners.append(listener)
        return listener.url

    async def dial(self, url: str, ssl: ssl.SSLContext | None = None) -> None:
        """Connect to an address in the background, and reconnect whenever the connection ends.

        It returns immediately. If the peer does not exist yet, the socket tries again after
        `reconnect_min` seconds, and then after increasing waits of at most `reconnect_max`. Use
        `wait_for_peers` to wait for the connection.

        Args:
            url: Same form as for `listen`.
            ssl: Authorities to trust, for ``tls+tcp`` and ``wss``; default: those of the system.

        Raises:
            InvalidOption: The URL or `ssl` cannot be used.
            Closed: The socket is closed.
        """
        self._check()
        address = parse_address(url)
        if not address.path and address.port == 0:
            raise InvalidOption(
                f"{url!r} has port 0, which only `listen` accepts.",
                field="url",
                remedy="Dial the URL that `listen` of the peer returned.",
            )
        self._dialers.append(
            Dialer(
                address,
                url,
                lambda: self._pipe(address, url),
                ssl,
                backoff=Backoff(*self._reconnect),
                timeout=self.hello_timeout,
            )
        )

    async def wait_for_peers(self, n: int = 1, *, timeout: Duration | None = None) -> None:
        """Wait until at least `n` peers are connected at the same time.

        Messages that a PUB sends before its subscribers are connected are lost.

        Args:
            n: Number of peers.
            timeout: Seconds or a timedelta; default: no timeout.

        Raises:
            OperationTimeout: Fewer than `n` peers were connected when `timeout` elapsed.
            Closed: The socket is closed, before or meanwhile.
        """
        seconds = seconds_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                while self._peers < n:
                    self._check()
                    await self._changed.wait()
        except TimeoutError:
            raise OperationTimeout(
                f"{self._peers} of {n} peers were connected within {seconds:g} s."
                f"{self._problems()}",
                remedy="",
            ) from None

    @property
    def stats(self) -> SocketStats:
        """The current counters of the socket."""
        peers = tuple(pipe.stats() for pipe in self._open if pipe.greeted)
        return SocketStats(
            sent=self._sent,
            received=0 if self.inbox is None else self.inbox.received,
            dropped_by_peer=self._lost + sum(peer.dropped for peer in peers),
            dropped_by_queue=0 if self.inbox is None else self.inbox.dropped,
            filtered=self._filtered,
            peers=peers,
            refused=MappingProxyType(dict(self._refused)),
        )

    async def close(self, linger: Duration = 1.0) -> None:
        """Close all connections and release all resources; calling it again has no effect.

        Pending `recv` and `wait_for_peers` calls raise `Closed`, and messages that the program has
        not received are discarded.

        Args:
            linger: Seconds, or a timedelta, to wait until peers have taken the messages that are
                queued for them; 0 drops these messages. Default 1.
        """
        seconds = seconds_of(linger, "linger")
        if self._closed:
            return
        self._closed = True
        for dialer in self._dialers:
            dialer.close()
        if self.inbox is not None:
            self.inbox.close()
        self._wake()
        await asyncio.gather(*(d.task for d in self._dialers), return_exceptions=True)
        await asyncio.gather(*(listener.close() for listener in self._listeners))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(pipe.drain() for pipe in self._open))
        for pipe in self._open:
            if pipe.idle:
                pipe.close()
            else:
                pipe.abort()
        while self._open:
            await asyncio.wait([pipe.ended for pipe in self._open], timeout=seconds)
            for pipe in self._open:
                pipe.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"peers={self._peers}"
        return f"<{type(self).__name__} {state}>"

    # ------------------------------------------------------------ called by connections

    def deliver(self, messages: list[bytes]) -> None:
        """Take messages from a peer."""

    def opened(self, pipe: Pipe) -> None:
        """The connection is open; the handshake is not complete."""
        self._open.add(pipe)

    def joined(self, pipe: Pipe) -> None:
        """The peer has completed the handshake."""
        self._pipes.setdefault(pipe.encoding, {})[pipe] = None
        self._peers += 1
        self._wake()

    def left(self, pipe: Pipe, reason: str | None) -> None:
        """The connection has ended; `reason` names the peer's protocol violation, if any."""
        self._open.discard(pipe)
        if pipe.greeted:
            del self._pipes[pipe.encoding][pipe]
            self._peers -= 1
            self._lost += pipe.dropped
        if reason is not None:
            self._refused[reason] += 1

    def _pipe(self, address: Address, dialed: str | None) -> Pipe:
        wire: Wire
        if address.websocket:
            wire = WebSocketWire(
                self.role, self._max_message_size, url=dialed, resource=address.resource
            )
        else:
            framing = Framing.IPC if address.path else Framing.TCP
            wire = StreamWire(self.role, framing, self._max_message_size)
        return Pipe(self, wire, self._queue_size)

    def _problems(self) -> str:
        """Why dialed or accepted peers are not connected, as far as it is known."""
        dialed = [f" {each.url}: {each.problem}." for each in self._dialers if each.problem]
        refused = ", ".join(f"{reason} ({count})" for reason, count in self._refused.items())
        return "".join(dialed) + (f" Refused: {refused}." if refused else "")

    def _check(self) -> None:
        if self._closed:
            raise Closed

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class PubSocket(Socket):
    """Sends each message to every connected SUB.

    Sending never waits. Each peer has a queue for the messages that it has not read; when the queue
    is full, the socket drops the oldest message. The socket stores nothing for later subscribers,
    and peers acknowledge nothing.

    Args:
        send_queue_size: Messages that may wait for one peer, at least 1; default 16.
        hello_timeout: Seconds, or a timedelta, within which a new peer must send its hello;
            default 10.
        reconnect_min: Seconds or a timedelta before the first further attempt to reach a dialed
            address; default 0.1.
        reconnect_max: Longest wait between attempts, in seconds or a timedelta; default 10.
    """

    role = Role.PUB

    def __init__(
        self,
        send_queue_size: int = 16,
        *,
        hello_timeout: Duration = _HELLO_TIMEOUT,
        reconnect_min: Duration = _RECONNECT_MIN,
        reconnect_max: Duration = _RECONNECT_MAX,
    ) -> None:
        super().__init__(
            inbox=None,
            queue_size=at_least_one("send_queue_size", send_queue_size),
            max_message_size=MAX_MESSAGE_SIZE,
            hello_timeout=hello_timeout,
            reconnect_min=reconnect_min,
            reconnect_max=reconnect_max,
        )

    def send(self, body: Bytes) -> Turn:
        """Send a message to every peer that is connected now.

        Begin the body with a topic that subscribers can filter by. The message is queued when this
        returns; awaiting the result only lets other tasks run. Without peers, the message is
        dropped.

        Raises:
            InvalidPayload: The body is not bytes.
            Closed: The socket is closed.
        """
        if self._closed:
            raise Closed
        if not isinstance(body, bytes):
            body = message_bytes(body)
        self._sent += 1
        for pipes in self._pipes.values():
            data = b""
            for pipe in pipes:
                data = data or pipe.encode(body)
                pipe.send(data)
        return _TURN

    async def recv(self, timeout: Duration | None = None) -> bytes:
        """Always raise `NotSupported`: a PUB only sends."""
        raise NotSupported


class SubSocket(Socket):
    """Receives the messages that begin with one of its prefixes, from every connected PUB.

    Args:
        recv_queue_size: Matching messages that may wait for `recv`, at least 1; default 128.
        drop_oldest: Whether a full queue drops the oldest waiting message (default); otherwise, it
            drops the new one.
        max_message_size: Longest message in bytes; a peer that announces more is disconnected.
            Default 16 MiB.
        hello_timeout: Seconds, or a timedelta, within which a new peer must send its hello;
            default 10.
        reconnect_min: Seconds or a timedelta before the first further attempt to reach a dialed
            address; default 0.1.
        reconnect_max: Longest wait between attempts, in seconds or a timedelta; default 10.
        inbox: The receive queue, for the blocking socket.
    """

    role = Role.SUB

    def __init__(
        self,
        recv_queue_size: int = 128,
        drop_oldest: bool = True,
        *,
        max_message_size: int = MAX_MESSAGE_SIZE,
        hello_timeout: Duration = _HELLO_TIMEOUT,
        reconnect_min: Duration = _RECONNECT_MIN,
        reconnect_max: Duration = _RECONNECT_MAX,
        inbox: Inbox | None = None,
    ) -> None:
        at_least_one("recv_queue_size", recv_queue_size)
        self._inbox = inbox or Inbox(recv_queue_size, drop_oldest=drop_oldest)
        super().__init__(
            inbox=self._inbox,
            queue_size=1,
            max_message_size=max_message_size,
            hello_timeout=hello_timeout,
            reconnect_min=reconnect_min,
            reconnect_max=reconnect_max,
        )
        self._prefixes = Prefixes()

    def subscribe(self, prefix: Bytes) -> Turn:
        """Receive messages that begin with `prefix` from now on; an empty prefix matches all.

        The bytes are copied. Subscribing to the same prefix again has no effect.

        Raises:
            InvalidOption: The prefix is not bytes.
            Closed: The socket is closed.
        """
        self._check()
        self._prefixes.add(prefix_bytes(prefix))
        return _TURN

    def unsubscribe(self, prefix: Bytes) -> Turn:
        """Unsubscribe from a prefix, and discard the waiting messages that no other prefix matches.

        Raises:
            InvalidOption: The prefix is not bytes.
            NotFound: The socket is not subscribed to `prefix`.
            Closed: The socket is closed.
        """
        self._check()
        try:
            self._prefixes.remove(prefix_bytes(prefix))
        except KeyError:
            raise NotFound from None
        self._inbox.purge(self._prefixes.select)
        return _TURN

    async def recv(self, timeout: Duration | None = None) -> bytes:
        """Return the next matching message, whole, with its prefix.

        Args:
            timeout: Seconds or a timedelta; default: no timeout.

        Raises:
            OperationTimeout: No message arrived within `timeout`.
            Closed: The socket is closed, before or meanwhile.
        """
        seconds = seconds_of(timeout)
        if seconds is None:
            return await self._inbox.get()
        try:
            async with asyncio.timeout(seconds):
                return await self._inbox.get()
        except TimeoutError:
            raise OperationTimeout(f"No message arrived within {seconds:g} s.", remedy="") from None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield messages until the socket is closed."""
        get = self._inbox.get
        try:
            while True:
                yield await get()
        except Closed:
            return

    def send(self, body: Bytes) -> Turn:
        """Always raise `NotSupported`: a SUB only receives."""
        raise NotSupported

    def deliver(self, messages: list[bytes]) -> None:
        """Take messages from a peer."""
        found = self._prefixes.select(messages)
        self._filtered += len(messages) - len(found)
        if found:
            self._inbox.put(found)
