"""What both directions of HTTP have in common: the client, its patience, one for each process."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

import httpx

from hanzoai.pubsub.errors import AuthError, ConnectionFailed, PubSubError
from hanzoai.pubsub.http.status import why_unreachable
from hanzoai.pubsub.settings.urls import is_loopback
from hanzoai.pubsub.version import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hanzoai.pubsub.spark.config import PubSubConfig
    from hanzoai.pubsub.spark.credentials import Credentials

T = TypeVar("T")

BACKOFF_MAX: Final = 5.0
PATIENCE: Final = 10
"""Times that `max_retries` is multiplied by where the server asks to wait: others may be served."""
AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that the same request may not get the next time."""


def open_client(config: PubSubConfig, transport: httpx.BaseTransport | None) -> httpx.Client:
    """A client of the server; several threads may use it.

    Args:
        config: Where it is.
        transport: What carries the requests, where it is not the network.
    """
    url = urlsplit(config.base_url)
    return httpx.Client(
        base_url=config.base_url,
        headers={"User-Agent": USER_AGENT, "Content-Type": "application/json"},
        timeout=config.request_timeout,
        verify=url.scheme == "https" and transport is None,
        trust_env=not is_loopback(url.hostname or ""),
        transport=transport,
        follow_redirects=False,
    )


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
                    "The server does not accept the token, and no other one came.",
                    code=error.code,
                    remedy="Let the token file, variable or provider give a fresh one "
                    "before it ends.",
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
    """One object for each key and process: built at first use, and anew after a fork."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, T]] = {}

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """The object of this key."""
        pid, known = self._known.get(key, (0, None))
        if known is None or pid != os.getpid():
            # Two threads that both build one lose nothing but a connection.
            known = build()
            self._known[key] = (os.getpid(), known)
        return known
