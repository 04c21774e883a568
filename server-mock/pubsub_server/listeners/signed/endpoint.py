"""WebSockets below `/pubsub/` and `/v1/pubsub/`, and the list of topics."""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from pubsub_server.errors import ServiceError
from pubsub_server.listeners.endpoints import Answer, RefusedError
from pubsub_server.listeners.signed import addresses
from pubsub_server.listeners.signed.encoders import SOCKET_FRAMES
from pubsub_server.listeners.signed.mirrors import Mirrors
from pubsub_server.listeners.signed.modes import GSOC
from pubsub_server.listeners.signed.relays import Relays
from pubsub_server.listeners.signed.socket_session import SocketSession
from pubsub_server.listeners.signed.upstreams import UpstreamError, open_socket, open_stream
from pubsub_server.shared.connection import NEVER
from pubsub_server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import Policy, Sink
    from pubsub_server.listeners.endpoints import Visit
    from pubsub_server.listeners.signed.addresses import Asked, BrokerAddress
    from pubsub_server.listeners.signed.stream_listener import Streams
    from pubsub_server.listeners.signed.upstreams import Upstream
    from pubsub_server.service import Service
    from pubsub_server.settings.config import Settings

_LOG: Final = logging.getLogger(__name__)
LOOPBACK_NAMES: Final = frozenset({"localhost"})


class SignedEndpoint:
    """See `endpoints.Endpoint`.

    Args:
        service: The hub.
        policy: The access rules.
        settings: Limits and deadlines.
        identity: The identity of its sockets.

    Attributes:
        streams: Streams of this node, for the list of topics.
        relays: Topics whose broker is another node.
        mirrors: Relayed topics that are published on this node.
        sessions: Open sessions, by topic.
    """

    def __init__(
        self, service: Service, policy: Policy, settings: Settings, identity: Identity
    ) -> None:
        self.service = service
        self.policy = policy
        self.settings = settings
        self.identity = identity
        self.streams: Streams | None = None
        self.tasks = Tasks(asyncio.get_running_loop(), _LOG, "signed topics")
        mirrored = dict(map(addresses.parse_topic, settings.signed_upstream_topics))
        self.relays = Relays(
            self.tasks, self._dial, lambda: self.broke("forged_by_broker"), mirrored
        )
        self.mirrors = Mirrors(
            *(service, identity, self.relays, self.tasks, mirrored),
            lambda: self.broke("mirror_overflow"),
        )
        self.sessions: dict[bytes, dict[SocketSession, None]] = {}
        service.stats.connections.setdefault(SOCKET_FRAMES.name, 0)
        if identity.anonymous:
            _LOG.warning(
                "sockets of signed topics are unauthenticated, and by default they have no"
                " permissions; to grant some, set listener_identities.signed"
            )
        elif "*" in settings.cors_origins and not settings.dev:
            _LOG.warning(
                "sockets of signed topics have no token: every page that a user of this network"
                " opens has the permissions of listener_identities.signed; list the origins of your"
                " pages in cors_origins"
            )

    # ------------------------------------------------------------ endpoints.Endpoint

    def handles(self, path: str) -> bool:
        """See `endpoints.Endpoint`."""
        return path.startswith(addresses.PREFIXES)

    def get(self, visit: Visit) -> Answer:
        """See `endpoints.Endpoint`: the list of topics."""
        if visit.path not in addresses.PREFIXES:
            return _answer(426, "connect to a topic with a WebSocket client")
        return Answer(200, orjson.dumps({"topics": self._topics()}))

    async def join(self, visit: Visit, sink: Sink) -> SocketSession:
        """See `endpoints.Endpoint`."""
        try:
            asked = addresses.read(visit)
        except ValueError as error:
            raise self._refusal(400, str(error), "bad_request") from None
        self._check(asked, visit.headers.get("origin"))
        try:
            connection = self.service.open(sink, SOCKET_FRAMES)
        except ServiceError as error:
            raise RefusedError(_answer(503, error.message)) from None
        relay = None
        try:
            await self.service.enter(connection, self.identity)
            if self._relays(asked):
                relay = await self.relays.enter(asked)
        except ServiceError as error:
            self.service.closed(connection)
            raise RefusedError(_answer(429, error.message)) from None
        except UpstreamError as error:
            self.service.closed(connection)
            _LOG.warning("cannot open the upstream of a signed topic: %s", error)
            raise self._refusal(502, "pubsub connect failed", "no_broker") from None
        except BaseException:
            self.service.closed(connection)
            raise
        # A subscriber sends no messages: its pongs keep the connection open.
        connection.last_spoke = NEVER
        session = SocketSession(self, sink, connection, asked, relay)
        self.sessions.setdefault(asked.topic, {})[session] = None
        self.service.note("subscribe", connection, asked.name)
        return session

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        """See `endpoints.Endpoint`."""
        return self.tasks.spawn(work)

    async def stop(self) -> None:
        """Close the remaining relays."""
        await self.tasks.stop()

    # ------------------------------------------------------------ for its sessions

    def left(self, session: SocketSession) -> None:
        """A session has ended."""
        sessions = self.sessions.get(session.asked.topic, {})
        sessions.pop(session, None)
        if not sessions:
            self.sessions.pop(session.asked.topic, None)

    def broke(self, reason: str) -> None:
        """Count a connection that the server closes, or a request for one that it rejects."""
        broken = self.service.stats.broken
        broken[f"signed.{reason}"] = broken.get(f"signed.{reason}", 0) + 1

    # ------------------------------------------------------------ inside

    def _relays(self, asked: Asked) -> bool:
        return asked.peer is not None or self.settings.signed_upstream is not None

    def _check(self, asked: Asked, origin: str | None) -> None:
        settings = self.settings
        if not self._relays(asked) and not settings.pubsub_broker_mode:
            message = "missing peer query param: this node is not a broker"
            raise self._refusal(400, message, "bad_request")
        if asked.peer is not None and not _may_dial(asked.peer, settings, origin):
            message = f"signed_peers of this node does not allow the broker {asked.peer}"
            raise self._refusal(403, message, "forbidden")
        writes = asked.parameters is not None
        allowed = self.policy.may_subscribe(self.identity, asked.name) and (
            not writes or self.policy.may_publish(self.identity, asked.name)
        )
        if not allowed:
            message = f"the access rules do not allow this identity to use {asked.name}"
            raise self._refusal(403, message, "forbidden")

    def _refusal(self, status: int, message: str, reason: str) -> RefusedError:
        self.broke(reason)
        return RefusedError(_answer(status, message))

    async def _dial(self, asked: Asked) -> Upstream:
        if asked.peer is not None:
            return await open_stream(asked, asked.peer)
        assert self.settings.signed_upstream is not None
        return await open_socket(asked, self.settings.signed_upstream)

    def _topics(self) -> list[dict[str, object]]:
        """Topics that the identity may read, with the role of this node."""
        broker: dict[bytes, list[str]] = {}
        for topic, sessions in self.sessions.items():
            ids = [each.connection.client_id for each in sessions if not self._relays(each.asked)]
            if ids:
                broker.setdefault(topic, []).extend(ids)
        if self.streams is not None:
            for topic, streams in self.streams.open.items():
                ids = [each.connection.client_id for each in streams]
                broker.setdefault(topic, []).extend(ids)
        relayed: dict[bytes, list[str]] = {}
        for relay in self.relays.open:
            relayed.setdefault(relay.topic, []).append(str(relay.peer or "upstream"))
        return [
            {
                "topicAddress": topic.hex(),
                "mode": GSOC.number,
                "role": "+".join(
                    role
                    for role, topics in (("broker", broker), ("subscriber", relayed))
                    if topic in topics
                ),
                "connections": [*broker.get(topic, ()), *relayed.get(topic, ())],
            }
            for topic in sorted({*broker, *relayed})
            if self.policy.may_subscribe(self.identity, addresses.hub_name(topic))
        ]


def _answer(status: int, message: str) -> Answer:
    return Answer(status, orjson.dumps({"code": status, "message": message}))


def _may_dial(peer: BrokerAddress, settings: Settings, origin: str | None) -> bool:
    allowed = settings.signed_peers
    if "*" in allowed or str(peer) in allowed:
        return True
    # A page of another site must not reach the other services of the developer's machine: they
    # receive a topic of the page's choice, and some execute each line that they receive.
    return settings.dev and _is_loopback(peer.host) and (origin is None or _is_local(origin))


def _is_local(origin: str) -> bool:
    try:
        return _is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
