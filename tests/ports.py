"""Ports for servers that stop and start again, and ports at which nobody listens."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from functools import cache
from pathlib import Path
from tempfile import gettempdir

_GIVEN: set[int] = set()
BELOW_OUTGOING = range(10_240, 32_768)
"""The kernel gives other ports to outgoing connections and to servers that ask for any port."""


def free_port() -> int:
    """Return a free port, reserved against outgoing connections and other tests.

    Raises:
        OSError: There is no free port.
    """
    for port in random.sample(BELOW_OUTGOING, min(100, len(BELOW_OUTGOING))):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _GIVEN and _reserve(port):
            _GIVEN.add(port)
            return port
    raise OSError("no port is free")


def _reserve(port: int) -> bool:
    """Lock the byte of a port in a file that all test processes of a user share.

    The lock lasts as long as this process, so a server keeps its port while it is stopped.
    """
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _reservations() -> int:
    file = Path(gettempdir()) / f"hanzo-pubsub-test-ports-{os.getuid()}"
    return os.open(file, os.O_WRONLY | os.O_CREAT)
