"""Letting clients go: connections end over a while, each when what it published is answered."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final

from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pubsub_server.shared.connection import Connection

STEP: Final = 0.05
"""Seconds between two groups of connections that end."""
SHARE: Final = 0.75
"""Of the time for all of it, at most, over which ends are spread; the rest is for what is open."""
SHUTTING_DOWN: Final = "the server is shutting down"


class Unanswered:
    """The publishes under way."""

    def __init__(self) -> None:
        self._under_way: set[object] = set()
        self._waiting: list[tuple[set[object], asyncio.Future[None]]] = []

    def begin(self, publish: object) -> None:
        """One more."""
        self._under_way.add(publish)

    def end(self, publish: object) -> None:
        """It is answered."""
        self._under_way.discard(publish)
        for awaited, future in self._waiting:
            awaited.discard(publish)
            if not awaited and not future.done():
                future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait until those that are under way now are answered, for this many seconds at most."""
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
    that time is cut short, a connection is asked to stay away for the rest of its share.

    Args:
        opened: Those that are open; the set shrinks as they end.
        end: Ends one, with a reason.
        unanswered: Publishes under way.
        seconds: For all of it.
        spread: Seconds between the first end and the last.
        hurry: Set: the rest ends at once.
        why: Message of the error `going_away` that each is sent.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    order = list(opened)
    random.shuffle(order)
    share = spread / max(1, len(order))
    bound = min(spread, seconds * SHARE)
    ended = 0
    while opened:
        passed = loop.time() - began
        whole = hurry.is_set() or passed >= bound
        until = len(order) if whole else min(len(order), int(passed / share) + 1)
        some = [each for each in order[ended:until] if not each.closed]
        for connection in some:
            # What is read no more is not acknowledged: its publisher sends it elsewhere.
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
