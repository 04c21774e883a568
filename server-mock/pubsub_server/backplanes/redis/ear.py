"""One connection to Redis that listens, and that says it when it is lost."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, cast

from pubsub_server.backplanes.redis.servers import BROKEN, LINK_ERRORS, broken, lost

if TYPE_CHECKING:
    from pubsub_server.backplanes.redis.servers import Server


class Ear:
    """One connection that listens.

    The `PubSub` of redis-py is of no use here: it reconnects by itself, and no one learns that
    something may have been missed in between.

    Args:
        server: Whose channels.
    """

    def __init__(self, server: Server) -> None:
        self._client: Any = server.listener()
        self._connection: Any = None

    async def open(self) -> None:
        """Dial.

        Raises:
            RedisError: The server is away, or refuses.
        """
        with broken():
            self._connection = await self._client.connection_pool.get_connection()
        # Its own handler makes a text of every message for a log that no one reads.
        self._connection._parser.set_pubsub_push_handler(_hand_on)  # noqa: SLF001

    async def listen(self, *channels: str) -> None:
        """Ask for these."""
        await self._say("SSUBSCRIBE", *channels)

    async def part(self, *channels: str) -> None:
        """Ask for these no more."""
        await self._say("SUNSUBSCRIBE", *channels)

    async def hear(self) -> tuple[str, str, Any]:
        """What comes next: its kind, its channel, and what it carries.

        Raises:
            RedisError: The connection is lost, or an answer is an error.
        """
        try:
            answer: Any = await self._connection.read_response(
                timeout=math.inf, disconnect_on_error=False, push_request=True
            )
        except BROKEN as error:
            raise lost(error) from error
        if not isinstance(answer, list):
            return "", "", b""
        parts = cast("list[Any]", answer)  # type: ignore[redundant-cast] # pyright needs it
        if len(parts) < 3:
            return "", "", b""
        kind, channel, data = parts[:3]
        return kind.decode(), channel.decode() if channel else "", data

    async def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(Exception):
            if self._connection is not None:
                await self._connection.disconnect(nowait=True)
            await self._client.aclose()

    async def _say(self, *words: str) -> None:
        # It would dial by itself, as one that listens to nothing.
        if not self._connection.is_connected:
            raise LINK_ERRORS[0]("the connection is lost")
        with broken():
            await self._connection.send_command(*words, check_health=False)


async def _hand_on(push: Any) -> Any:
    return push
