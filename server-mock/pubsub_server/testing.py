"""A real server for tests, in the running event loop, on free ports of 127.0.0.1."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pubsub_server.auth import dev_tokens
from pubsub_server.server import Server
from pubsub_server.settings import sources as config_sources

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from pubsub_server.auth.identity import Kind
    from pubsub_server.hub.faults import Faults
    from pubsub_server.hub.hub import Hub
    from pubsub_server.interfaces import Stats


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server.

    Attributes:
        http: Base URL of the HTTP API.
        ws: URL of the WebSocket.
        server: The server itself.
    """

    http: str
    ws: str
    server: Server

    @property
    def hub(self) -> Hub:
        """Its hub."""
        return self.server.hub

    @property
    def stats(self) -> Stats:
        """The counters of its hub."""
        return self.server.hub.stats

    @property
    def faults(self) -> Faults:
        """Fault injection.

        Raises:
            RuntimeError: The server runs without `faults`.
        """
        if self.server.faults is None:
            raise RuntimeError(
                "this server does not inject faults, because it runs without `faults`"
            )
        return self.server.faults

    def token(
        self,
        user: str = "alice",
        *,
        kind: Kind = "user",
        orgs: Sequence[str] = (),
        ttl: float = 3600,
        name: str | None = None,
        sessions_owned: Sequence[str] = (),
        sessions_shared: Sequence[str] = (),
        agents: Sequence[str] = (),
        bulk: bool = False,
    ) -> str:
        """A development token of this server.

        Args:
            user: The user id.
            kind: `user`, `service`, `admin` or `agent`.
            orgs: Organizations the user is a member of.
            ttl: Seconds until it expires.
            name: Display name.
            sessions_owned: Chat sessions the user owns.
            sessions_shared: Chat sessions shared with the user.
            agents: Agents the user has access to.
            bulk: Whether it publishes in bulk.

        Raises:
            RuntimeError: The server runs without `dev`.
        """
        if self.server.dev_key is None:
            raise RuntimeError(
                "this server does not accept development tokens, because it runs without `dev`"
            )
        return dev_tokens.mint(
            self.server.dev_key,
            user,
            kind=kind,
            orgs=orgs,
            ttl=ttl,
            name=name,
            sessions_owned=sessions_owned,
            sessions_shared=sessions_shared,
            agents=agents,
            bulk=bulk,
        )

    def service_token(
        self,
        user: str = "service",
        *,
        orgs: Sequence[str] = (),
        sessions_owned: Sequence[str] = (),
        agents: Sequence[str] = (),
        ttl: float = 3600,
        bulk: bool = False,
    ) -> str:
        """A development token of a service, which may publish everywhere."""
        return self.token(
            user,
            kind="service",
            orgs=orgs,
            sessions_owned=sessions_owned,
            agents=agents,
            ttl=ttl,
            bulk=bulk,
        )

    def admin_token(self, user: str = "admin") -> str:
        """A development token of an administrator."""
        return self.token(user, kind="admin")


@asynccontextmanager
async def running_server(**settings: object) -> AsyncGenerator[RunningServer, None]:
    """Runs a server while the context is open.

    It listens on free ports; by default it is a development server with a temporary key, with fault
    injection, and drains within a second.

    Args:
        **settings: Settings by name, as in a settings file.

    Raises:
        SettingsError: A setting is unknown or wrong.
        StartError: The server cannot start with these.
    """
    outside = {"iam_url", "iam_jwks_url", "api_keys_file"} & set(settings)
    given: dict[str, object] = {
        "host": "127.0.0.1",
        "http_port": 0,
        "ws_port": 0,
        "dev": not outside,
        "faults": True,
        "drain_timeout": 1_000,
        "log_level": "warning",
        **settings,
    }
    server = Server(config_sources.load(given), dev_key=secrets.token_bytes(32))
    await server.start()
    try:
        yield RunningServer(server.http, server.ws, server)
    finally:
        await server.stop()
