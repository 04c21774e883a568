"""The address of a client: that of the connection, or the one that a trusted proxy reports."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, TypeAlias, cast

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

FORWARDED: Final = "X-Forwarded-For"


class Callers:
    """Distinguishes clients from the proxies in front of the server.

    Args:
        trusted: Addresses and networks of proxies, such as `10.0.0.0/24`. Only their headers are
            used.

    Raises:
        ValueError: An entry is neither an address nor a network.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted: list[Network] = [ipaddress.ip_network(each) for each in trusted]

    def address(self, peer: str | None, forwarded: Sequence[str]) -> str | None:
        """The address of the client.

        Args:
            peer: Address at the other end of the connection; None if unknown.
            forwarded: The header `X-Forwarded-For` of the request.

        Returns:
            The last address in the header that does not belong to a trusted proxy, if a trusted
            proxy sent it; else the peer.
        """
        here = _parsed(peer) if self._trusted else None
        if here is None or not self._is_trusted(here):
            return peer
        for given in reversed([each for line in forwarded for each in line.split(",")]):
            before = _parsed(given)
            if before is None:
                # Any client can forge the addresses before it.
                break
            here = before
            if not self._is_trusted(here):
                break
        return str(here)

    def behind(self, peer: str | None) -> bool:
        """Whether this peer is a trusted proxy."""
        here = _parsed(peer) if self._trusted else None
        return here is not None and self._is_trusted(here)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def peer(transport: asyncio.BaseTransport | None) -> str | None:
    """The address at the other end; None if there is none, as on a Unix socket."""
    return plain(None if transport is None else transport.get_extra_info("peername"))


def plain(name: object) -> str | None:
    """The address in the name of a socket, without its port."""
    host = cast("tuple[object, ...]", name)[0] if isinstance(name, tuple) and name else None
    # A dual-stack socket reports IPv4 addresses in this form.
    return host.removeprefix("::ffff:") if isinstance(host, str) and host else None


def _parsed(text: str | None) -> Address | None:
    """Parse an address, with or without a port."""
    bare = (text or "").strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        found = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return found if mapped is None else mapped
