"""Drains connections: they end over a period, each after its publishes are answered."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Final

from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pubsub_server.shared.connection import Connection

STEP: Final = 0.05
"""Seconds between two groups of connections that end."""
SHARE: Final = 0.75
"""Maximum part of the drain time over which ends are spread; the rest is for open requests."""
SHUTTING_DOWN: Final = "the server is shutting down"


class Unanswered:
    """The publishes in progress."""

    def __init__(self) -> None:
        self._under_way: set[object] = set()
        self._waiting: list[tuple[set[object], asyncio.Future[None]]] = []

    def begin(self, publish: object) -> None:
        """A publish begins."""
        self._under_way.add(publish)

    def end(self, publish: object) -> None:
        """A publish is answered."""
        self._under_way.discard(publish)
        for awaited, future in self._waiting:
            awaited.discard(publish)
            if not awaited and not future.done():
                future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait until the current publishes are answered, for at most this many seconds."""
        if not self._under_way:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = set(self._under_way), future
        self._waiting.append(waiting)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.remove(waiting)


async def end_all(
    opened: Collection[Connection],
    end: Callable[[Connection, ServiceError], None],
    unanswered: Unanswered,
    *,
    seconds: float,
    spread: float,
    hurry: asyncio.Event,
    why: str = SHUTTING_DOWN,
) -> None:
    """End every connection.

    Clients reconnect shortly after their connection ends, so the ends are spread over the time. If
    that time is cut short, each remaining client is asked to wait for the rest of its share.

    Args:
        opened: The open connections; the set shrinks as they end.
        end: Ends a connection with a reason.
        unanswered: Publishes in progress.
        seconds: Maximum time in total.
        spread: Seconds between the first end and the last.
        hurry: Set it to end the rest immediately.
        why: Message of the error `going_away` that each client receives.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    order = list(opened)
    secrets.SystemRandom().shuffle(order)
    share = spread / max(1, len(order))
    bound = min(spread, seconds * SHARE)
    ended = 0
    while opened:
        passed = loop.time() - began
        whole = hurry.is_set() or passed >= bound
        until = len(order) if whole else min(len(order), int(passed / share) + 1)
        some = [each for each in order[ended:until] if not each.closed]
        for connection in some:
            # Unread publishes are not acknowledged, so their publisher sends them to another node.
            connection.sink.hold(True)
        if some:
            await unanswered.wait(max(0.0, seconds - passed))
        for number, connection in enumerate(some, ended):
            early = number * share - (loop.time() - began)
            wait = round(early * 1000) if whole and early > 0 else None
            end(connection, ServiceError("going_away", why, retry_after_ms=wait))
        ended = until
        if ended >= len(order):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STEP):
                await hurry.wait()
