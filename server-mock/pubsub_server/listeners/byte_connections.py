"""What all connections of one byte protocol on one address share."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

from pubsub_server.auth.identity import Identity
from pubsub_server.listeners.pre_auth import pre_auth_limiter
from pubsub_server.shared.turns import Turns
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pubsub_server.interfaces import Policy
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.encoder import Encoder

logger = logging.getLogger(__name__)

NOBODY: Final = Identity("anonymous", anonymous=True)
"""Identity of connections if the configuration does not set one."""

Name: TypeAlias = Literal["event_stream", "hub", "signed_stream", "sp_pub"]
"""The setting with the address of a listener."""


class Open(Protocol):
    """An open connection."""

    @property
    def unread(self) -> int:
        """Bytes of its half-read frames."""
        ...

    def close(self, code: int, reason: str) -> None:
        """See `interfaces.Sink`."""
        ...

    def drop(self, reason: str) -> None:
        """Cut it to release its bytes at once."""
        ...

    def abort(self) -> None:
        """See `interfaces.Sink`."""
        ...


class ByteConnections:
    """The connections of one listener, and what they need from the server.

    Args:
        name: The protocol.
        encoder: The encoder of the connections.
        service: The hub.
        policy: The access rules, which also apply to messages that stay among these connections.
        settings: Limits and deadlines.
        identity: The identity of the connections.

    Attributes:
        certified: Identities by name of the client certificate.
        handshakes: TLS handshakes by address.
        open: The open connections, and the closed ones whose requests still wait.
        outliving: Number of the closed ones.
        first_within: Seconds for a client's first request; see `ByteSession.overdue`.
        unread: Bytes of half-read frames, of all connections.
    """

    def __init__(
        self,
        name: Name,
        encoder: Encoder,
        service: Service,
        policy: Policy,
        settings: Settings,
        identity: Identity,
    ) -> None:
        self.name: Name = name
        self.encoder = encoder
        self.service = service
        self.policy = policy
        self.settings = settings
        self.identity = identity
        self.certified: Mapping[str, Identity] = {}
        loop = asyncio.get_running_loop()
        self.tasks = Tasks(loop, logger, name)
        self.open: set[Open] = set()
        self.outliving = 0
        self.handshakes = pre_auth_limiter(settings)
        self.turns = Turns(loop)
        self.unread = 0
        self.first_within = settings.auth_deadline / 1000
        self._empty: asyncio.Future[None] | None = None
        self._warned: set[str] = set()
        stats = service.stats
        stats.connections.setdefault(encoder.name, 0)
        for counts in (stats.local, stats.denied):
            counts.setdefault(name, 0)
        if identity.anonymous:
            logger.warning(
                "connections of %s are unauthenticated, and by default they have no permissions;"
                " to grant some, set their identity in listener_identities",
                name,
            )

    def identify(self, certificate: object) -> Identity:
        """The identity of a connection.

        Args:
            certificate: The verified client certificate, as from `ssl.SSLSocket.getpeercert`; or
                None.
        """
        for name in _names(certificate):
            if name in self.certified:
                return self.certified[name]
        return self.identity

    @property
    def full(self) -> bool:
        """Whether more clients are connected than allowed.

        The closed ones do not count: `connections_per_user` bounds them, and `UNREAD_BYTES` bounds
        their requests.
        """
        return len(self.open) - self.outliving > self.settings.max_connections

    def gone(self, connection: Open) -> None:
        """A connection has ended."""
        self.open.discard(connection)
        if not self.open and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def broke(self, reason: str) -> None:
        """Count a connection that the server closes."""
        broken = self.service.stats.broken
        name = f"{self.name}.{reason}"
        broken[name] = broken.get(name, 0) + 1

    def stayed(self) -> None:
        """Count a message that stays among these connections."""
        self.service.stats.local[self.name] += 1

    def denied(self, identity: Identity, topic: str) -> None:
        """Count a message that the rules deny."""
        self.service.stats.denied[self.name] += 1
        self.warn_denied("publish to", identity, topic)

    def warn_denied(self, action: str, identity: Identity, topic: str) -> None:
        """Log the first denial of an action: these protocols do not report it to the client."""
        if action not in self._warned:
            self._warned.add(action)
            logger.warning(
                "listener %s: the access rules do not allow %s to %s %s; later denials are not"
                " logged",
                self.name,
                identity.user_id,
                action,
                topic[:100],
            )

    async def end(self, seconds: float) -> None:
        """Close every connection, wait for at most this long, and cut the rest."""
        for each in list(self.open):
            each.close(1001, "going_away")
        if self.open:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=seconds)
        for each in list(self.open):
            each.abort()
        self.tasks.cancel()


def _names(certificate: object) -> Iterator[str]:
    """The common name of a certificate and its alternative names."""
    if not isinstance(certificate, dict):
        return
    fields = cast("dict[str, Any]", certificate)
    for part in fields.get("subject", ()):
        yield from (value for key, value in part if key == "commonName")
    for _, value in fields.get("subjectAltName", ()):
        yield value
