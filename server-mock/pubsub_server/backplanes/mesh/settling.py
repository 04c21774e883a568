"""Waits until the peers have acknowledged what this node subscribes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Iterable

    from pubsub_server.backplanes.mesh.link import Link


class Settling:
    """The requests of clients that wait for acknowledgements.

    Args:
        loop: Runs their timers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], dict[Link, tuple[int, int]]] = {}

    def wait(self, links: Iterable[Link], seconds: float) -> Awaitable[None] | None:
        """Wait until the peers have acknowledged all subscriptions of this node.

        Args:
            links: Connections in use.
            seconds: Maximum time of the wait.

        Returns:
            None if all have already acknowledged.
        """
        missing = {
            link: announcements.asked
            for link in links
            if not (announcements := link.peering.announcements).reached(announcements.asked)
        }
        if not missing:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[future] = missing
        timer = self._loop.call_later(seconds, _done, future)

        def settled(_: asyncio.Future[None]) -> None:
            timer.cancel()
            self._waiting.pop(future, None)

        future.add_done_callback(settled)
        return future

    def progress(self, link: Link) -> None:
        """A peer has acknowledged something, or its connection has ended."""
        for future, missing in list(self._waiting.items()):
            asked = missing.get(link)
            if asked is not None and (link.ended or link.peering.announcements.reached(asked)):
                del missing[link]
                if not missing:
                    _done(future)

    def end(self) -> None:
        """End every wait."""
        for future in self._waiting:
            _done(future)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
