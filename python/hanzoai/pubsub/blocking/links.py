"""Base classes of the blocking clients of byte protocols."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from hanzoai.pubsub.blocking.portal import Portal
from hanzoai.pubsub.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from hanzoai.pubsub.durations import Duration

T = TypeVar("T")
M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class _Client(Protocol):
    @property
    def target(self) -> str: ...

    async def close(self) -> None: ...


class _Subscription(Protocol[M_co]):
    reconnects: int

    async def open(self) -> None: ...

    async def recv(self, timeout: Duration | None = None) -> M_co: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=_Client)


class BlockingClient(Generic[C]):
    """A client whose connections run in an event loop in a separate thread."""

    def __init__(self, inner: C) -> None:
        self._inner = inner
        self._portal = Portal()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def target(self) -> str:
        """The address of the peer, ``HOST:PORT`` or a path."""
        return self._inner.target

    def close(self) -> None:
        """End all connections and the thread; calling it again does nothing.

        In a forked process, it does nothing to the client of the parent process.
        """
        if self._portal.is_foreign:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._portal.call(self._inner.close)
        finally:
            self._portal.stop()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._inner)

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise ClosedError
        return self._portal.call(make)


class BlockingSubscription(Generic[M]):
    """Messages for a program of threads."""

    def __init__(self, portal: Portal, inner: _Subscription[M]) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def reconnects(self) -> int:
        """Number of reconnects."""
        return self._inner.reconnects

    def open(self) -> None:
        """Connect and subscribe."""
        self._portal.call(self._inner.open)

    def recv(self, timeout: Duration | None = None) -> M:
        """Return the next message.

        Args:
            timeout: Seconds or a timedelta; default: no timeout.

        Raises:
            OperationTimeout: No message arrived within `timeout`.
            ConnectionFailed: The first connection could not be opened.
            ProtocolError: The server sends data that does not belong to this protocol.
            ClosedError: The subscription is closed.
        """
        return self._portal.call(lambda: self._inner.recv(timeout))

    def close(self) -> None:
        """Unsubscribe and end the connection; calling it again does nothing."""
        if self._portal.is_foreign:
            return
        with contextlib.suppress(ClosedError):  # the client is closed, and its subscriptions too
            self._portal.call(self._inner.close)

    def __iter__(self) -> Iterator[M]:
        """Yield messages until the subscription is closed."""
        while True:
            try:
                yield self.recv()
            except ClosedError:
                return

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
