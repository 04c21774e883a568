"""What both directions of HTTP have in common: the client, its patience, one for each process."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

import httpx

from hanzoai.pubsub.errors import AuthError, PubSubError
from hanzoai.pubsub.settings.urls import is_loopback
from hanzoai.pubsub.version import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hanzoai.pubsub.spark.config import PubSubConfig

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


def host_of(config: PubSubConfig) -> str:
    """The server's name, for people."""
    return urlsplit(config.base_url).hostname or ""


def backoff(config: PubSubConfig, failures: int) -> float:
    """Seconds before the next attempt, after so many that failed."""
    longest = min(BACKOFF_MAX, config.retry_backoff * 2.0 ** (failures - 1))
    return longest * random.uniform(0.5, 1.0)


def refused(error: PubSubError) -> AuthError:
    """What a 401 means once no other token came."""
    return AuthError(
        "The server does not accept the token, and no other one came.",
        code=error.code,
        remedy="Let the token file, variable or provider give a fresh one before it ends.",
    )


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
