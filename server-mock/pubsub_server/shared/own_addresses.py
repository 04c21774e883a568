"""The addresses of a host on which this machine can listen.

A host may have addresses that the machine does not have: `localhost` often is `::1` too, although
there is no IPv6. Some event loops then listen on no address at all.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_LOG: Final = logging.getLogger("pubsub_server")

Resolved = tuple[int, int, int, str, Any]
"""A result of `getaddrinfo`."""


async def own_addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """The addresses on which to listen: each with its family, as for a socket.

    Args:
        host: A name or an address.
        port: Where to listen.

    Raises:
        OSError: The host is not known, or has no address of this machine.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return present(host, found)


async def own_hosts(host: str, port: int) -> list[str]:
    """Like `own_addresses`, for `create_server`: the addresses without their ports."""
    hosts: list[str] = []
    for _, (address, _, *more) in await own_addresses(host, port):
        # An IPv6 address is complete only with its scope, such as the interface of `fe80::1`.
        scope = more[1] if more else 0
        hosts.append(f"{address}%{scope}" if scope else address)
    return hosts


def present(host: str, found: Iterable[Resolved]) -> list[tuple[int, Any]]:
    """Those of the resolved addresses that this machine has; logs the others.

    Args:
        host: The name or address that was resolved.
        found: What it was resolved to.

    Raises:
        OSError: The machine has none of them.
    """
    places = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    failures = [_absence(*place) for place in places]
    kept = [place for place, failure in zip(places, failures, strict=True) if failure is None]
    for (_, address), failure in zip(places, failures, strict=True):
        if failure is None:
            continue
        if not kept:
            raise failure
        _LOG.warning(
            "not listening on %s, port %d: this machine does not have this address of %s",
            *address[:2],
            host,
        )
    return kept


def _absence(family: int, address: Any) -> OSError | None:
    """Why the machine does not have an address; None if it has it."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0, *address[2:]))
    except OSError as error:
        if error.errno in _ABSENT:
            return error
    return None
