"""Shared state of the parts of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.session.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.session.peer import Peer
    from hanzoai.pubsub.session.ports import Ports
    from hanzoai.pubsub.settings.session import SessionOptions


class Context:
    """Options, ports, randomness, timers, and the peer of the current connection."""

    def __init__(self, options: SessionOptions, ports: Ports, random: Callable[[], float]) -> None:
        self.options = options
        self.ports = ports
        self.random = random
        self.timers = Timers(ports)
        self.peer: Peer | None = None  # None without an authenticated connection
