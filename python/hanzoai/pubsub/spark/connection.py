"""HTTP connections and retries of both source and sink, shared within a process."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from hanzoai.pubsub.errors import AuthError, ConnectionFailed, PubSubError
from hanzoai.pubsub.http.library import httpx
from hanzoai.pubsub.http.status import why_unreachable
from hanzoai.pubsub.randomness import RANDOM
from hanzoai.pubsub.settings.proxies import host_of, system_proxy
from hanzoai.pubsub.version import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from hanzoai.pubsub.spark.config import PubSubConfig
    from hanzoai.pubsub.spark.credentials import Credentials


BACKOFF_MAX: Final = 5.0
PATIENCE: Final = 10
"""Factor of `max_retries` when the server asks to wait, since it may be serving other clients."""
AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""
WITHOUT_ROUTE: Final = frozenset({404, 405, 501})
"""Statuses of a server that does not have the requested path or method."""


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)


class Connection:
    """Keep-alive connections to one server, for several threads.

    Uses a transport of httpx without `httpx.Client`, which takes half of the CPU time of a request
    for cookies, redirects and base addresses that are not used here.

    Args:
        config: Address of the server.
        transport: Carries the requests instead of the network.
    """

    def __init__(self, config: PubSubConfig, transport: httpx.BaseTransport | None) -> None:
        self._base = config.base_url.rstrip("/")
        self._timeout = config.request_timeout
        # Loading certificates reads the disk: skip it if none is verified.
        secure = config.base_url.startswith("https:")
        self._transport = transport or httpx.HTTPTransport(
            verify=secure, proxy=system_proxy(config.base_url)
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
            method: HTTP method.
            path: Path below the address of the server.
            token: Token of the request.
            content: JSON.
            params: Query parameters.
            wait: Seconds that the server may delay the answer.

        Raises:
            httpx.HTTPError: No answer arrived.
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
        """Close all connections."""
        self._transport.close()


def backoff(config: PubSubConfig, failures: int) -> float:
    """Return the seconds before the next attempt, by the number of failures."""
    longest = min(BACKOFF_MAX, config.retry_backoff * 2.0 ** (failures - 1))
    return longest * RANDOM.uniform(0.5, 1.0)


class Attempts:
    """Counts consecutive failures, and chooses the token of the next attempt.

    Args:
        config: Number of retries, and their waits.
        credentials: Source of tokens.

    Attributes:
        failures: Consecutive failures; reset it after progress.
    """

    def __init__(self, config: PubSubConfig, credentials: Credentials) -> None:
        self._config = config
        self._credentials = credentials
        self._refused: str | None = None
        self.failures = 0

    def token(self) -> str:
        """Return the token of the next request; after a rejection, a new one."""
        return self._credentials.token(self._refused)

    def accepted(self) -> None:
        """The server accepted the token."""
        self._refused = None

    def unreachable(self, error: httpx.HTTPError) -> float:
        """Count a missing answer; returns the seconds before the next attempt.

        Raises:
            ConnectionFailed: It was the last attempt.
        """
        self.failures += 1
        if self.failures > self._config.max_retries:
            url = self._config.base_url
            parts, proxy = urlsplit(url), host_of(system_proxy(url))
            reason = why_unreachable(error, parts.hostname or "", proxy, port=parts.port)
            raise ConnectionFailed(
                reason,
                remedy=(
                    "Check the network, and that `url` is the address of the HTTP API (port 8056"
                    " by default). `hanzo-pubsub doctor` finds the first cause."
                ),
            ) from None
        return backoff(self._config, self.failures)

    def answered(self, status: int, error: PubSubError, token: str) -> float | None:
        """Count a rejection; returns the seconds before the next attempt, None if none is left.

        Args:
            status: HTTP status.
            error: The server's error.
            token: Token of the request.

        Raises:
            AuthError: The server accepts none of the tokens.
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
            # If there is a new token already, retry without a wait.
            if self._credentials.token(token) != token:
                self._refused = None
                return 0.0
        elif self.failures > patience or status not in AGAIN:
            if status == 403:
                self._credentials.forget()
            return None
        return max(error.retry_after or 0.0, backoff(self._config, self.failures))


class PerProcess(Generic[T]):
    """One object per key and process: built at first use, and again after a fork.

    A normal exit of the process closes them.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, T]] = {}
        atexit.register(self.close)

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """Return the object of this key."""
        pid, known = self._known.get(key, (0, None))
        if known is None or pid != os.getpid():
            # If two threads both build one, only a connection is lost.
            known = build()
            self._known[key] = (os.getpid(), known)
        return known

    def close(self) -> None:
        """Close the objects of this process; a fork does not close its parent's."""
        while self._known:
            _, (pid, known) = self._known.popitem()
            if pid == os.getpid():
                known.close()
