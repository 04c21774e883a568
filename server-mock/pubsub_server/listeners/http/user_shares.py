"""Limits what one user may occupy of the HTTP port: connections, and bytes in transit.

A connection takes a share when a token is accepted on it. It reports the bytes of the body that it
is receiving, and of the large response that it is sending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub_server.errors import ServiceError
from pubsub_server.listeners.pre_auth import RETRY_SECONDS

if TYPE_CHECKING:
    from pubsub_server.interfaces import Identity
    from pubsub_server.settings.config import Settings

    Key = tuple[str, str]

CONNECTIONS: Final = 10
"""HTTP connections per connection that `connections_per_user` allows: requests are short."""
BODIES: Final = 32
"""Bodies of the maximum size that a user may send at the same time."""


class UserShares:
    """The shares of all users of a listener.

    Args:
        connections: Maximum connections per user.
        size: Maximum bytes in transit per user. A single body or response may be larger.
    """

    def __init__(self, connections: int, size: int) -> None:
        self._connections = connections
        self._size = size
        self._users: dict[Key, _Usage] = {}

    def __len__(self) -> int:
        """Number of connections with a share."""
        return sum(usage.connections for usage in self._users.values())

    def enter(self, identity: Identity) -> UserShare:
        """Take a share until `UserShare.leave`.

        Raises:
            ServiceError: `connection_limit`, if the user has too many connections.
        """
        key = (identity.kind, identity.user_id)
        usage = self._users.get(key)
        if usage is None:
            usage = self._users[key] = _Usage()
        elif usage.connections >= self._connections:
            raise ServiceError(
                "connection_limit",
                f"{identity.user_id} has {self._connections:,} HTTP connections, which is the"
                " maximum for a user",
                retry_after_ms=RETRY_SECONDS * 1000,
            )
        usage.connections += 1
        return UserShare(self, key, usage)

    def fits(self, usage: _Usage, own: int) -> bool:
        """Whether the bytes of a user are within the limit, or all of one connection."""
        return usage.size <= self._size or usage.size == own

    def full(self, usage: _Usage) -> bool:
        """Whether the bytes of a user have reached the limit."""
        return usage.size >= self._size

    def free(self, key: Key, usage: _Usage) -> None:
        """Remove one connection of a user."""
        usage.connections -= 1
        if not usage.connections:
            del self._users[key]


class UserShare:
    """The share of one connection.

    Attributes:
        key: Kind and id of the user.
    """

    __slots__ = ("_held", "_shares", "_usage", "key")

    def __init__(self, shares: UserShares, key: Key, usage: _Usage) -> None:
        self.key = key
        self._shares = shares
        self._usage = usage
        self._held = 0

    @property
    def full(self) -> bool:
        """Whether the user has so many bytes in transit that no large response fits."""
        return self._shares.full(self._usage)

    def hold(self, size: int) -> bool:
        """Report the bytes in transit on this connection.

        Returns:
            False if there are more than before, and more than the user may have.
        """
        more = size - self._held
        self._held = size
        self._usage.size += more
        return more <= 0 or self._shares.fits(self._usage, size)

    def leave(self) -> None:
        """Release the share; call it once."""
        self._usage.size -= self._held
        self._shares.free(self.key, self._usage)


class _Usage:
    """Connections and bytes of one user."""

    __slots__ = ("connections", "size")

    def __init__(self) -> None:
        self.connections = 0
        self.size = 0


def user_shares(settings: Settings) -> UserShares:
    """The shares of one listener."""
    # Held requests have a limit of their own.
    connections = CONNECTIONS * settings.connections_per_user + settings.held_per_user
    return UserShares(connections, BODIES * max(settings.max_batch_bytes, settings.max_payload))
