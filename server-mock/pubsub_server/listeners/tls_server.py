"""Accepts TLS connections, and limits unfinished handshakes.

The servers of the event loops report a connection only after its handshake. Until then, it uses a
file descriptor, and about 55 KB with uvloop or 210 KB with asyncio.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import traceback
from typing import TYPE_CHECKING, Any, Final

from pubsub_server.listeners.callers import Callers, plain
from pubsub_server.shared.own_addresses import own_addresses
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from pubsub_server.listeners.pre_auth import PreAuthLimiter
    from pubsub_server.settings.config import Settings

BACKLOG: Final = 4_096
ACCEPTED: Final = 64
"""Maximum connections accepted in one turn of the loop."""
ANSWERED: Final = 64
"""Handshakes above `max_connections`: these clients receive an error after the handshake."""
PAUSE_SECONDS: Final = 1.0
"""Seconds to wait if there is no file descriptor for a connection."""

_LOG: Final = logging.getLogger("pubsub_server")


class TlsServer:
    """Accepts TLS connections on one address.

    Args:
        session: Creates the protocol of a connection.
        context: Its certificates.
        settings: Limits.
        limiter: Handshakes by address.
        count: Number of connections of the listener whose handshake is done.
        seconds: For a handshake.
        shutdown_seconds: For the end of TLS; None for the default of the event loop.

    Attributes:
        sockets: The listening sockets.
    """

    def __init__(
        self,
        session: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        settings: Settings,
        limiter: PreAuthLimiter,
        count: Callable[[], int],
        *,
        seconds: float,
        shutdown_seconds: float | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._limiter = limiter
        self._count = count
        self._most = settings.max_connections + ANSWERED
        self._callers = Callers(settings.trusted_proxies)
        self._tasks = Tasks(self._loop, _LOG, "tls")
        self._options: dict[str, Any] = {
            "ssl": context,
            "ssl_handshake_timeout": seconds,
            "ssl_shutdown_timeout": shutdown_seconds,
        }
        self._closed = False
        self.sockets: Sequence[socket.socket] = ()

    async def listen(self, host: str, port: int, *, reuse_port: bool = False) -> None:
        """Listen on all addresses of a host.

        Raises:
            OSError: The port is in use, or the address does not belong to this machine.
        """
        opened: list[socket.socket] = []
        try:
            for family, address in await own_addresses(host, port):
                opened.append(
                    socket.create_server(
                        address, family=family, backlog=BACKLOG, reuse_port=reuse_port
                    )
                )
        except OSError:
            for each in opened:
                each.close()
            raise
        self.sockets = opened
        for each in opened:
            each.setblocking(False)
            self._watch(each)

    def close(self) -> None:
        """Stop listening, and cut connections with an unfinished handshake."""
        self._closed = True
        closed, self.sockets = self.sockets, ()
        for each in closed:
            self._loop.remove_reader(each.fileno())
            each.close()
        self._tasks.cancel()

    # ------------------------------------------------------------ inside

    def _watch(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    raise
                # It stays readable, so the loop would spin.
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(PAUSE_SECONDS, self._watch, listening)
                return
            accepted.setblocking(False)
            self._begin(accepted, plain(address))

    def _begin(self, accepted: socket.socket, address: str | None) -> None:
        full = self._count() + len(self._tasks) >= self._most
        here = None if self._callers.behind(address) else address
        slot = None if full else self._limiter.enter(here)
        if slot is None:
            accepted.close()
            return
        task = self._tasks.spawn(self._shake_hands(accepted))
        task.add_done_callback(lambda _: slot.leave())

    async def _shake_hands(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._session, accepted, **self._options)
        except OSError as error:
            # Any client can cause failures here, so the log does not contain them. The error and
            # its frames refer to each other, and to buffers of 256 KB, which the garbage collector
            # would find too late.
            traceback.clear_frames(error.__traceback__)
