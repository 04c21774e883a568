"""Listens at an address, or dials it and reconnects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from typing import TYPE_CHECKING, Final, TypedDict

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.links.connections import check_context
from hanzoai.pubsub.network.dialing import open_socket
from hanzoai.pubsub.network.unix_sockets import bind_unix

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.links.connections import Backoff
    from hanzoai.pubsub.sp.addresses import Address
    from hanzoai.pubsub.sp.pipe import Pipe

_log: Final = logging.getLogger("hanzoai.pubsub.sp")
_BACKLOG: Final = 128
_GOODBYE: Final = 1.0
"""Maximum seconds for the shutdown of a TLS connection."""


class TlsOptions(TypedDict, total=False):
    """Arguments that asyncio accepts for an encrypted connection."""

    ssl: ssl.SSLContext
    ssl_handshake_timeout: float
    ssl_shutdown_timeout: float


def tls_options(tls: ssl.SSLContext | None, timeout: float) -> TlsOptions:
    """The asyncio arguments for `tls`; empty without encryption."""
    if tls is None:
        return {}
    return {"ssl": tls, "ssl_handshake_timeout": timeout, "ssl_shutdown_timeout": _GOODBYE}


class Listener:
    """A bound address, which accepts peers.

    Attributes:
        url: The address as peers dial it, with the port that the system chose.
    """

    def __init__(
        self,
        bound: socket.socket,
        url: str,
        file: tuple[bytes, int] | None,
        make: Callable[[], Pipe],
        options: TlsOptions,
    ) -> None:
        self._bound = bound
        self._file = file
        self._make = make
        self._options = options
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._paused: asyncio.TimerHandle | None = None
        self._loop.add_reader(bound.fileno(), self._accept)
        self.url = url

    @classmethod
    async def open(
        cls,
        address: Address,
        url: str,
        make: Callable[[], Pipe],
        tls: ssl.SSLContext | None,
        timeout: float,
    ) -> Listener:
        """Bind and listen; a TLS handshake may take `timeout` seconds.

        Raises:
            InvalidOption: The scheme needs a TLS context and there is none, or the reverse.
            OSError: The address is in use, or cannot be bound.
        """
        check_context(tls)
        if address.tls != (tls is not None):
            wanted = "needs a" if address.tls else "does not use a"
            raise InvalidOption(
                f"{address.scheme}:// {wanted} TLS context.",
                field="ssl",
                remedy="Pass ssl=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) with your certificate."
                if address.tls
                else "Use tls+tcp:// or wss://, or leave ssl out.",
            )
        loop = asyncio.get_running_loop()
        file = None
        if address.path:
            bound = bind_unix(address.path)
            if not address.path.startswith(b"\0"):
                file = address.path, os.stat(address.path).st_ino
        else:
            infos = await loop.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, where = infos[0]
            bound = socket.socket(family, socket.SOCK_STREAM)
            try:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind(where)
            except BaseException:
                bound.close()
                raise
            url = address.with_port(bound.getsockname()[1])
        bound.setblocking(False)
        bound.listen(_BACKLOG)
        return cls(bound, url, file, make, tls_options(tls, timeout))

    async def close(self) -> None:
        """Stop accepting peers, and remove the socket file if there is one."""
        self._loop.remove_reader(self._bound.fileno())
        if self._paused is not None:
            self._paused.cancel()
        self._bound.close()
        tasks = set(self._connecting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._file is not None:
            path, inode = self._file
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == inode:
                    os.unlink(path)

    # asyncio.Server and loop.sock_accept leak a connection that arrives while they close.
    def _accept(self) -> None:
        try:
            accepted, _ = self._bound.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            _log.warning("%s accepts no connections for a second: %s", self.url, error)
            self._loop.remove_reader(self._bound.fileno())
            self._paused = self._loop.call_later(
                1, self._loop.add_reader, self._bound.fileno(), self._accept
            )
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted))
        self._connecting.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._connecting.discard(task)
            if task.cancelled():
                accepted.close()

        task.add_done_callback(ended)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, accepted, **self._options)
        except OSError as error:  # the TLS handshake failed, or the peer has disconnected
            _log.debug("%s lost a peer that was connecting: %s", self.url, error)
            accepted.close()


class Dialer:
    """Connects to an address, and reconnects whenever the connection ends.

    The waits between attempts start again with the shortest one after a connection on which the
    peer completed the handshake.

    Attributes:
        url: The address.
        problem: Why the last attempt failed; empty if it did not.
    """

    def __init__(
        self,
        address: Address,
        url: str,
        make: Callable[[], Pipe],
        tls: ssl.SSLContext | None,
        *,
        backoff: Backoff,
        timeout: float,
    ) -> None:
        check_context(tls)
        if tls is not None and not address.tls:
            raise InvalidOption(
                f"{address.scheme}:// does not use a TLS context.",
                field="ssl",
                remedy="Use tls+tcp:// or wss://, or leave ssl out.",
            )
        self._address = address
        self.url = url
        self.problem = ""
        self._make = make
        self._tls = ssl.create_default_context() if address.tls and tls is None else tls
        self._backoff = backoff
        self._timeout = timeout
        self.task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop dialing; the current connection stays open."""
        self.task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                pipe = await self._connect()
            except OSError as error:
                refused = isinstance(error, ConnectionRefusedError | FileNotFoundError)
                self.problem = "no program listens there" if refused else str(error).rstrip(".")
                _log.debug("%s cannot be reached: %s", self.url, error)
            else:
                self.problem = ""
                await asyncio.shield(pipe.ended)
                if pipe.greeted:
                    self._backoff.reset()
            await asyncio.sleep(self._backoff.next())

    async def _connect(self) -> Pipe:
        loop = asyncio.get_running_loop()
        address = self._address
        if address.path:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.setblocking(False)
            try:
                await loop.sock_connect(made, address.path)
                _, pipe = await loop.create_connection(self._make, sock=made)
            except BaseException:
                made.close()
                raise
            return pipe
        options = tls_options(self._tls, self._timeout)
        connected = await open_socket(address.host, address.port)
        name = None if self._tls is None else address.host
        _, pipe = await loop.create_connection(
            self._make, sock=connected, server_hostname=name, **options
        )
        return pipe
