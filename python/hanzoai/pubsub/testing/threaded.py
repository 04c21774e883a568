"""The reference server in its own thread, for tests with or without asyncio."""

from __future__ import annotations

import functools
import inspect
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypedDict

from hanzoai.pubsub.blocking.portal import Portal
from hanzoai.pubsub.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_server.testing import RunningServer


class Address(TypedDict):
    """Client options with the address of a server."""

    url: str
    rest_url: str


_running: set[ThreadedServer] = set()
"""Servers run until `stop`, even if a program keeps only their addresses."""


class ThreadedServer:
    """A real server on free ports of 127.0.0.1.

    Args:
        **settings: Settings of the server by name; default a development server.

    Attributes:
        ws: URL of the WebSocket.
        http: Base URL of the HTTP API.

    Raises:
        UsageError: The server is not installed.
    """

    def __init__(self, **settings: object) -> None:
        try:
            from pubsub_server.testing import running_server
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pubsub_server":
                raise
            raise UsageError(
                "The reference server is not installed.",
                remedy="Install it: pip install 'hanzoai.pubsub[server]'.",
                cause=error,
            ) from None
        self._portal = Portal()
        self._stack = AsyncExitStack()
        self._stopped = False
        self._running: RunningServer = self._portal.call(
            lambda: self._stack.enter_async_context(running_server(**settings))
        )
        self.ws = self._running.ws
        self.http = self._running.http
        _running.add(self)

    @property
    def faults(self) -> Any:
        """Faults to inject, ``pubsub_server.hub.faults.Faults``; can be used from any thread."""
        return _InLoop(self._running.faults, self.call)

    @property
    def options(self) -> Address:
        """``url`` and ``rest_url``, for a client: ``PubSubClient(token=..., **server.options)``."""
        return {"url": self.ws, "rest_url": self.http}

    def token(self, user: str = "alice", **claims: Any) -> str:
        """A token of a user; see ``pubsub_server.testing.RunningServer.token``."""
        return self._running.token(user, **claims)

    def service_token(self, user: str = "service") -> str:
        """A token of a service, which may publish everywhere."""
        return self._running.service_token(user)

    def admin_token(self, user: str = "admin") -> str:
        """A token of an administrator, who may do everything."""
        return self._running.admin_token(user)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function in the thread and event loop of the server, for example on its hub."""

        async def run() -> Any:
            result = function(*arguments, **named)
            return await result if inspect.isawaitable(result) else result

        return self._portal.call(run)

    @property
    def running(self) -> RunningServer:
        """The server; use its objects through ``call``."""
        return self._running

    def stop(self) -> None:
        """Stop the server. You can call it several times."""
        if not self._stopped:
            self._stopped = True
            _running.discard(self)
            self._portal.call(self._stack.aclose)
            self._portal.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _InLoop:
    """Proxy of an object in the server's loop: its methods run there, from any thread."""

    def __init__(self, target: object, call: Callable[..., Any]) -> None:
        self._target = target
        self._call = call

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return value
        return functools.partial(self._call, value)
