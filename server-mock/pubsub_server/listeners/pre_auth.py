"""Limits the resources of unauthenticated connections, per client address.

A connection takes a slot when it opens, and releases it when its token is accepted or when it ends.
While it has the slot, it reports the bytes that the server holds for it.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pubsub_server.settings.config import Settings

DEFAULT_CONNECTIONS: Final = 1_000
RETRY_SECONDS: Final = 1
"""Seconds after which a rejected client may try again."""
TOO_MANY: Final = "too many connections from this address have not authenticated"
TOO_MUCH: Final = "connections from this address have sent too many bytes before they authenticated"


class PreAuthLimiter:
    """Slots and bytes of the connections of one listener that have not authenticated.

    All IPv6 addresses of a /64 count as one, because a client owns a whole network.

    Args:
        connections: Slots per address; None for no limit.
        size: Maximum bytes held per address.

    Attributes:
        refused: Number of connections without a slot, or with too many bytes.
    """

    def __init__(self, connections: int | None, size: int) -> None:
        self._connections = connections
        self._size = size
        self._addresses: dict[str | bytes, _Usage] = {}
        self.refused = 0

    def __len__(self) -> int:
        """Number of connections with a slot."""
        return sum(usage.connections for usage in self._addresses.values())

    @property
    def held(self) -> int:
        """Bytes held for all of them."""
        return sum(usage.size for usage in self._addresses.values())

    def enter(self, address: str | None) -> PreAuthSlot | None:
        """Take a slot until `PreAuthSlot.leave`.

        Args:
            address: Address of the client; None, as on a Unix socket, has no limits.

        Returns:
            The slot; None if all slots of the address are in use.
        """
        if address is None:
            return PreAuthSlot(self, "", _Usage())
        key = _network(address)
        usage = self._addresses.get(key)
        if usage is None:
            usage = self._addresses[key] = _Usage()
        elif self._connections is not None and usage.connections >= self._connections:
            self.refused += 1
            return None
        usage.connections += 1
        return PreAuthSlot(self, key, usage)

    def has_room(self, usage: _Usage) -> bool:
        """Whether the bytes of one address are within the limit; counts a refusal if not."""
        if usage.connections and usage.size > self._size:
            self.refused += 1
            return False
        return True

    def free(self, key: str | bytes, usage: _Usage) -> None:
        """Remove one connection of an address."""
        usage.connections -= 1
        if not usage.connections:
            self._addresses.pop(key, None)


class PreAuthSlot:
    """The slot of one connection."""

    __slots__ = ("_held", "_key", "_limiter", "_usage")

    def __init__(self, limiter: PreAuthLimiter, key: str | bytes, usage: _Usage) -> None:
        self._limiter = limiter
        self._key = key
        self._usage = usage
        self._held = 0

    def hold(self, size: int) -> bool:
        """Report the bytes that the server now holds for this connection.

        Returns:
            False if it holds more than before and its address more than allowed: then close it.
        """
        more = size - self._held
        self._held = size
        self._usage.size += more
        return more <= 0 or self._limiter.has_room(self._usage)

    def add(self, size: int) -> bool:
        """Report further bytes; see `hold`."""
        return self.hold(self._held + size)

    def leave(self) -> None:
        """Release the slot; further calls do nothing."""
        self._usage.size -= self._held
        self._held = 0
        if self._key:
            self._limiter.free(self._key, self._usage)
            self._key = ""


class _Usage:
    """Slots and bytes of one address."""

    __slots__ = ("connections", "size")

    def __init__(self) -> None:
        self.connections = 0
        self.size = 0


def pre_auth_limiter(settings: Settings) -> PreAuthLimiter:
    """The limiter of one listener."""
    connections = settings.unauthenticated_per_address
    if connections is None and (not settings.behind_tls_proxy or settings.trusted_proxies):
        # All clients behind an untrusted proxy share its address, so a few of them could block the
        # others.
        connections = DEFAULT_CONNECTIONS
    return PreAuthLimiter(connections, settings.unauthenticated_bytes)


def _network(address: str) -> str | bytes:
    if ":" not in address:
        return address
    try:
        return ipaddress.IPv6Address(address.partition("%")[0]).packed[:8]
    except ValueError:
        return address
