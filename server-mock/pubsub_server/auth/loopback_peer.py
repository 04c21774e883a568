"""Finds the owner of the process at the other end of a local connection, on Linux."""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path
from typing import Final

TABLES: Final = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}

Address = tuple[str, int]


def owner_of_peer(
    peer: Address, here: Address, tables: dict[int, Path] | None = None
) -> int | None:
    """User id of the owner of the other socket.

    Args:
        peer: Its address and port.
        here: Address and port of this side.
        tables: The kernel's tables of TCP connections, by version of IP; proc(5).

    Returns:
        None if the system has no such table, or the connection is not in it.
    """
    wanted = [_entry(peer), _entry(here)]
    try:
        version = ipaddress.ip_address(peer[0]).version
        with (tables or TABLES)[version].open(encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[1:3] == wanted:
                    return int(fields[7])
    except (OSError, ValueError, IndexError):
        return None
    return None


def _entry(address: Address) -> str:
    """An address in the kernel's format: 32-bit words in native byte order, then the port."""
    packed = ipaddress.ip_address(address[0]).packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    host = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{host}:{address[1]:04X}"
