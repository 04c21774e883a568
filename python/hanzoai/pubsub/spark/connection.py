"""What both directions of HTTP have in common: connections, patience, one for each process."""

from __future__ import annotations

import atexit
import os
import random
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from hanzoai.pubsub.errors import AuthError, ConnectionFailed, PubSubError
from hanzoai.pubsub.http.library import httpx
from hanzoai.pubsub.http.status import why_unreachable
from hanzoai.pubsub.settings.urls import is_loopback
from hanzoai.pubsub.version import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from hanzoai.pubsub.spark.config import PubSubConfig
    from hanzoai.pubsub.spark.credentials import Credentials


BACKOFF_MAX: Final = 5.0
PATIENCE: Final = 10
"""Times that `max_retries` is multiplied by where the server asks to wait: others may be served."""
AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that the same request may not get the next time."""


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)


class Connection:
    """Connections to one server, kept alive; several threads may use them.

    It is a transport of httpx without `httpx.Client` around it, which takes half of the processor's
    time that a request costs, for cookies, redirects and base addresses that are not used here.

    Args:
        config: Where the server is.
        transport: What carries the requests, where it is not the network.
    """

    def __init__(self, config: PubSubConfig, transport: httpx.BaseTransport | None) -> None:
        self._base = config.base_url.rstrip("/")
        self._timeout = config.request_timeout
        # Certificates are read from disk, which is to be left out where none is looked at.
        secure = config.base_url.startswith("https:")
        self._transport = transport or httpx.HTTPTransport(
            verify=secure, proxy=_proxy(config.base_url)
        )

    def ask(
        self,
        method: str,
        path: str,
        token: str,
        *,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        wait: float = 0.0,
    ) -> httpx.Response:
        """Send a request, and read the whole answer.

        Args:
            method: Of HTTP.
            path: Behind the address of the server.
            token: Goes with the request.
            content: JSON.
            params: Of the query.
            wait: Seconds that the server may hold the answer back.

        Raises:
            httpx.HTTPError: No answer came.
        """
        request = httpx.Request(
            method,
            self._base + path,
            params=params,
            headers=[
                ("Authorization", f"Bearer {token}"),
                ("Content-Type", "application/json"),
                ("User-Agent", USER_AGENT),
            ],
            content=content,
            extensions={"timeout": httpx.Timeout(self._timeout + wait).as_dict()},
        )
        response = self._transport.handle_request(request)
        try:
            response.read()
        finally:
            response.close()
        return response

    def close(self) -> None:
        """Close them all."""
        self._transport.close()


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for a server, as for every other program."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    named = getproxies()
    proxy = named.get(parts.scheme) or named.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def backoff(config: PubSubConfig, failures: int) -> float:
    """Seconds before the next attempt, after so many that failed."""
    longest = min(BACKOFF_MAX, config.retry_backoff * 2.0 ** (failures - 1))
    return longest * random.uniform(0.5, 1.0)


class Attempts:
    """How often something was asked for and failed in a row, and the token that it goes with next.

    Args:
        config: How patient.
        credentials: Where tokens come from.

    Attributes:
        failures: Of now; set it back where something was achieved.
    """

    def __init__(self, config: PubSubConfig, credentials: Credentials) -> None:
        self._config = config
        self._credentials = credentials
        self._refused: str | None = None
        self.failures = 0

    def token(self) -> str:
        """For the next request: another one than what was refused last."""
        return self._credentials.token(self._refused)

    def accepted(self) -> None:
        """The server took the token."""
        self._refused = None

    def unreachable(self, error: httpx.HTTPError) -> float:
        """No answer came: seconds before the next attempt.

        Raises:
            ConnectionFailed: It was the last one.
        """
        self.failures += 1
        if self.failures > self._config.max_retries:
            host = urlsplit(self._config.base_url).hostname or ""
            raise ConnectionFailed(why_unreachable(error, host)) from None
        return backoff(self._config, self.failures)

    def answered(self, status: int, error: PubSubError, token: str) -> float | None:
        """The server refused: seconds before the next attempt, None where none is left.

        Args:
            status: Of HTTP.
            error: What it said.
            token: That of the request.

        Raises:
            AuthError: It accepts no token that there is.
        """
        self.failures += 1
        patience = self._config.max_retries * (PATIENCE if status == 429 else 1)
        if status == 401:
            if self.failures > patience:
                raise AuthError(
                    "The server rejects the token, and its source returned no other.",
                    code=error.code,
                    remedy="Renew the token in the file, variable or provider before it expires.",
                )
            self._refused = token
            # Another one may be there already: then there is nothing to wait for.
            if self._credentials.token(token) != token:
                self._refused = None
                return 0.0
        elif self.failures > patience or status not in AGAIN:
            return None
        return max(error.retry_after or 0.0, backoff(self._config, self.failures))


class PerProcess(Generic[T]):
    """One object for each key and process: built at first use, and again after a fork.

    They are closed where the process ends by itself.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, T]] = {}
        atexit.register(self.close)

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """The object of this key."""
        pid, known = self._known.get(key, (0, None))
        if known is None or pid != os.getpid():
            # Two threads that both build one lose only a connection.
            known = build()
            self._known[key] = (os.getpid(), known)
        return known

    def close(self) -> None:
        """Close those of this process; a fork leaves its parent's alone."""
        while self._known:
            _, (pid, known) = self._known.popitem()
            if pid == os.getpid():
                known.close()
