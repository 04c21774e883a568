"""A listener of a byte protocol on TCP or a Unix socket, with its connections' shared state."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, cast

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import validate_topic
from pubsub_server.auth.identity import Identity
from pubsub_server.settings.addresses import Address
from pubsub_server.shared.accepting import stop_accepting
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping

    from pubsub_server.interfaces import Policy
    from pubsub_server.listeners.byte_session import ByteSession

    Session: TypeAlias = ByteSession[Any]
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings
    from pubsub_server.shared.encoder import Encoder

logger = logging.getLogger(__name__)

NOBODY: Final = Identity("anonymous", anonymous=True)
"""Identity of connections if the configuration does not set one."""


class ByteListener(ABC):
    """Connections of one protocol on one address.

    Args:
        service: The hub.
        policy: The access rules, which also apply to messages that stay among these connections.
        settings: Limits and deadlines.
        identity: The identity of the connections.

    Attributes:
        certified: Identities by name of the client certificate.
        name: Name of the setting with its address.
        encoder: The encoder of its connections.
        first_within: Seconds for a client's first request; see `ByteSession.overdue`.
        unread: Bytes of half-read frames, of all connections.
    """

    name: ClassVar[Literal["event_stream", "hub", "signed_stream", "sp_pub"]]
    encoder: Encoder

    def __init__(
        self, service: Service, policy: Policy, settings: Settings, identity: Identity
    ) -> None:
        self.service = service
        self.policy = policy
        self.settings = settings
        self.identity = identity
        self.certified: Mapping[str, Identity] = {}
        self.tasks = Tasks(asyncio.get_running_loop(), logger, self.name)
        self.sessions: set[Session] = set()
        self.unread = 0
        self.first_within = settings.auth_deadline / 1000
        self._server: asyncio.Server | None = None
        self._empty: asyncio.Future[None] | None = None
        stats = service.stats
        stats.connections.setdefault(self.encoder.name, 0)
        for counts in (stats.local, stats.denied):
            counts.setdefault(self.name, 0)
        if identity.anonymous:
            logger.warning(
                "connections of %s are unauthenticated: they have the permissions of such"
                " clients, by default none; set their identity with listener_identities",
                self.name,
            )

    @abstractmethod
    def session(self) -> Session:
        """A new connection."""

    async def start(self, address: Address, tls: ssl.SSLContext | None = None) -> Address:
        """Listen, and return the address.

        Args:
            address: TCP or a Unix socket. A socket file without a listener is replaced.
            tls: For TCP.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
        """
        loop = asyncio.get_running_loop()
        if address.path is not None:
            abstract = address.path.startswith("\0")
            if not abstract:
                _remove_stale(address.path)
            self._server = await loop.create_unix_server(self.session, address.path, backlog=4096)
            if not abstract:
                os.chmod(address.path, 0o600)
            return address
        seconds = self.settings.auth_deadline / 1000 if tls is not None else None
        self._server = await loop.create_server(
            self.session,
            address.host,
            address.port,
            ssl=tls,
            backlog=4096,
            ssl_handshake_timeout=seconds,
        )
        return Address(address.host, int(self._server.sockets[0].getsockname()[1]))

    async def stop_listening(self) -> None:
        """Stop accepting connections."""
        await stop_accepting(self._server)

    async def stop(self, seconds: float) -> None:
        """Wait until every connection has closed, for at most this long, and cut the rest."""
        await self.stop_listening()
        for session in list(self.sessions):
            session.close(1001, "going_away")
        if self.sessions:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=seconds)
        for session in list(self.sessions):
            session.abort()
        self.tasks.cancel()

    # ------------------------------------------------------------ for its connections

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

    def gone(self, session: Session) -> None:
        """A connection has ended."""
        self.sessions.discard(session)
        if not self.sessions and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def broke(self, reason: str) -> None:
        """Count a connection that the server closes."""
        broken = self.service.stats.broken
        name = f"{self.name}.{reason}"
        broken[name] = broken.get(name, 0) + 1

    def stayed(self) -> None:
        """Count a message that stays among these connections."""
        self.service.stats.local[self.name] += 1

    def denied(self) -> None:
        """Count a message that the rules deny."""
        self.service.stats.denied[self.name] += 1


def hub_topic(topic: bytes) -> str | None:
    """The topic as HIP-56 names it; None if it is not valid in HIP-56."""
    try:
        return validate_topic(topic.decode("ascii"))
    except (UnicodeDecodeError, InvalidTopic):
        return None


def shown(topic: bytes) -> str:
    """The topic for rules and audit, for any bytes."""
    return topic.decode(errors="replace")


def _names(certificate: object) -> Iterator[str]:
    """The common name of a certificate and its alternative names."""
    if not isinstance(certificate, dict):
        return
    fields = cast("dict[str, Any]", certificate)
    for part in fields.get("subject", ()):
        yield from (value for key, value in part if key == "commonName")
    for _, value in fields.get("subjectAltName", ()):
        yield value


def _remove_stale(path: str) -> None:
    """Remove a socket file without a listener."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
