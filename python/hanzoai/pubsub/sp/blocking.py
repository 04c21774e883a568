"""PUB and SUB sockets for threads, with the methods of the asyncio sockets.

Any number of threads may share a socket. An event loop in a background thread runs its connections.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Self, TypeVar

from hanzoai.pubsub.blocking.portal import Portal
from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.sp import sockets
from hanzoai.pubsub.sp.arguments import at_least_one, message_bytes, prefix_bytes
from hanzoai.pubsub.sp.codec import MAX_MESSAGE_SIZE
from hanzoai.pubsub.sp.errors import Closed, NotFound, NotSupported
from hanzoai.pubsub.sp.inbox import ThreadInbox

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from hanzoai.pubsub.durations import Duration
    from hanzoai.pubsub.links.unparsed import Bytes
    from hanzoai.pubsub.sp.stats import SocketStats

__all__ = ["Closed", "NotFound", "NotSupported", "PubSocket", "SubSocket"]

T = TypeVar("T")

_AHEAD = 1024
"""Maximum messages that wait for the loop's thread; at this limit, `send` waits."""


class _Blocking:
    """The part that both sockets share."""

    _socket: sockets.Socket

    def __init__(self) -> None:
        self._portal = Portal()
        self._lock = threading.Lock()
        self._closed = False

    def listen(self, url: str, ssl: ssl.SSLContext | None = None) -> str:
        """Accept peers at an address; see `sockets.Socket.listen`."""
        return self._call(lambda: self._socket.listen(url, ssl))

    def dial(self, url: str, ssl: ssl.SSLContext | None = None) -> None:
        """Connect in the background and reconnect as needed; see `sockets.Socket.dial`."""
        self._call(lambda: self._socket.dial(url, ssl))

    def wait_for_peers(self, n: int = 1, *, timeout: Duration | None = None) -> None:
        """Wait until `n` peers are connected; see `sockets.Socket.wait_for_peers`."""
        self._call(lambda: self._socket.wait_for_peers(n, timeout=timeout))

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    @property
    def stats(self) -> SocketStats:
        """The current counters of the socket."""

        async def read() -> SocketStats:
            return self._socket.stats

        return self._socket.stats if self._closed else self._call(read)

    def close(self, linger: Duration = 1.0) -> None:
        """Close all connections and stop the thread; see `sockets.Socket.close`.

        In a forked process, it does nothing to the socket of the parent process.
        """
        seconds = seconds_of(linger, "linger")
        if self._portal.is_foreign:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._portal.call(lambda: self._socket.close(seconds))
        finally:
            self._portal.stop()

    def __repr__(self) -> str:
        return repr(self._socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise Closed
        return self._portal.call(make)


class PubSocket(_Blocking):
    """Sends each message to every connected SUB; see `sockets.PubSocket`.

    Args:
        send_queue_size: Messages that may wait for one peer, at least 1; default 16.
        hello_timeout: Seconds, or a timedelta, within which a new peer must send its hello;
            default 10.
        reconnect_min: Seconds or a timedelta before the first further attempt to reach a dialed
            address; default 0.1.
        reconnect_max: Longest wait between attempts, in seconds or a timedelta; default 10.
    """

    def __init__(
        self,
        send_queue_size: int = 16,
        *,
        hello_timeout: Duration = 10.0,
        reconnect_min: Duration = 0.1,
        reconnect_max: Duration = 10.0,
    ) -> None:
        self._socket = self._pub = sockets.PubSocket(
            send_queue_size,
            hello_timeout=hello_timeout,
            reconnect_min=reconnect_min,
            reconnect_max=reconnect_max,
        )
        super().__init__()
        self._ahead: deque[bytes] = deque()
        self._scheduled = False
        self._room = threading.Condition(self._lock)

    def send(self, body: Bytes) -> None:
        """Send a message to every peer; see `sockets.PubSocket.send`.

        Messages of one thread go out in the order of its calls. It never waits for a peer; it
        waits for the socket's own thread when that is 1,024 messages behind.

        Raises:
            InvalidPayload: The body is not bytes.
            Closed: The socket is closed.
        """
        data = message_bytes(body)
        with self._room:
            while len(self._ahead) >= _AHEAD and not self._closed:
                self._room.wait()
            if self._closed:
                raise Closed
            self._ahead.append(data)
            if self._scheduled:
                return
            self._scheduled = True
        self._portal.post(self._send)

    def recv(self, timeout: Duration | None = None) -> bytes:
        """Always raise `NotSupported`: a PUB only sends."""
        raise NotSupported

    def close(self, linger: Duration = 1.0) -> None:
        """Close all connections and stop the thread; see `sockets.Socket.close`."""
        if not self._closed:
            self._portal.call(self._last)
        super().close(linger)
        with self._room:
            self._room.notify_all()

    def _send(self) -> None:
        with self._room:
            bodies, self._ahead = self._ahead, deque()
            self._scheduled = False
            self._room.notify_all()
        if not self._pub.closed:
            for body in bodies:
                self._pub.send(body)

    async def _last(self) -> None:
        self._send()


class SubSocket(_Blocking):
    """Receives the messages that begin with one of its prefixes; see `sockets.SubSocket`.

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
    """

    def __init__(
        self,
        recv_queue_size: int = 128,
        drop_oldest: bool = True,
        *,
        max_message_size: int = MAX_MESSAGE_SIZE,
        hello_timeout: Duration = 10.0,
        reconnect_min: Duration = 0.1,
        reconnect_max: Duration = 10.0,
    ) -> None:
        size = at_least_one("recv_queue_size", recv_queue_size)
        self._inbox = ThreadInbox(size, drop_oldest=drop_oldest)
        self._socket = self._sub = sockets.SubSocket(
            recv_queue_size,
            drop_oldest,
            max_message_size=max_message_size,
            hello_timeout=hello_timeout,
            reconnect_min=reconnect_min,
            reconnect_max=reconnect_max,
            inbox=self._inbox,
        )
        super().__init__()

    def subscribe(self, prefix: Bytes) -> None:
        """Receive messages that begin with `prefix`; see `sockets.SubSocket.subscribe`."""
        copy = prefix_bytes(prefix)

        async def subscribe() -> None:
            self._sub.subscribe(copy)

        self._call(subscribe)

    def unsubscribe(self, prefix: Bytes) -> None:
        """Unsubscribe from a prefix; see `sockets.SubSocket.unsubscribe`."""
        copy = prefix_bytes(prefix)

        async def unsubscribe() -> None:
            self._sub.unsubscribe(copy)

        self._call(unsubscribe)

    def recv(self, timeout: Duration | None = None) -> bytes:
        """Return the next matching message, whole, with its prefix.

        Args:
            timeout: Seconds or a timedelta; default: no timeout.

        Raises:
            OperationTimeout: No message arrived within `timeout`.
            Closed: The socket is closed, before or meanwhile.
        """
        return self._inbox.get_blocking(seconds_of(timeout))

    def __iter__(self) -> Iterator[bytes]:
        """Yield messages until the socket is closed."""
        try:
            while True:
                yield self._inbox.get_blocking(None)
        except Closed:
            return

    def send(self, body: Bytes) -> None:
        """Always raise `NotSupported`: a SUB only receives."""
        raise NotSupported
