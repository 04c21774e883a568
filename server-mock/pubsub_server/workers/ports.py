"""Ports that several processes share: the supervisor reserves them while it runs."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from pubsub_server.access.setup import StartError
from pubsub_server.shared.failure_texts import listen_failure
from pubsub_server.shared.own_addresses import present

if TYPE_CHECKING:
    from pubsub_server.settings.config import Settings


def reserve(host: str, port: int) -> socket.socket:
    """Bind a port without listening on it, so that only the workers can use it.

    Args:
        host: The address.
        port: 0 selects a free one.

    Raises:
        OSError: It is in use, or the address does not belong to this machine.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, address = present(host, found)[0]
    with socket.socket(family) as probe:
        # Without SO_REUSEPORT, to detect workers of another supervisor on the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        address = (address[0], probe.getsockname()[1], *address[2:])
    reserved = socket.socket(family)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError:
        reserved.close()
        raise
    return reserved


def refused_port(error: OSError, name: str, settings: Settings) -> StartError:
    """The error for a port that cannot be used, with the remedy."""
    port: int = getattr(settings, name)
    flag = "--" + name.replace("_", "-")
    if error.errno == errno.EADDRINUSE:
        detail = f"port {port} of {settings.host} is in use; choose another with {flag} (0: any)"
    elif error.errno == errno.EACCES:
        detail = f"port {port} needs privileges; choose one above 1023 with {flag}"
    else:
        reason = listen_failure(error)
        detail = f"host: cannot listen on {settings.host}, port {port}: {reason}"
    return StartError(detail)
