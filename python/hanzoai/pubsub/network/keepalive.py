"""TCP keepalive, for protocols without a heartbeat."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

PROBE_AFTER: Final = 60
"""Seconds without data after which the operating system probes the peer."""
PROBES: Final = 4
"""Unanswered probes, each 15 seconds after the previous one, after which the connection ends."""


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the operating system detect that the peer is gone, even if nothing is sent.

    Args:
        transport: Of a connection; one that is not TCP stays as it is.
    """
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    # A connection that the peer has already ended may refuse options.
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", PROBE_AFTER),
            ("TCP_KEEPALIVE", PROBE_AFTER),  # the same, on macOS
            ("TCP_KEEPINTVL", PROBE_AFTER // 4),
            ("TCP_KEEPCNT", PROBES),
        ):
            option: int | None = getattr(socket, name, None)
            if option is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
