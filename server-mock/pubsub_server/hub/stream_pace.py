"""Limits how often event streams receive large snapshots.

An event stream receives all members after each change. Without a pause between large snapshots, the
joins of n members would cost n² entries.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.wheel import Wheel

LARGE: Final = 65_536
"""Bytes of a snapshot that is followed by a pause."""
BYTES_PER_SECOND: Final = 2e6
"""Bytes of the snapshots of a topic that are created in a second."""


class StreamPace:
    """Calls `show` for the changes of a topic: once for all of them that occur in a pause.

    Args:
        wheel: Ends the pauses.
        show: Sends a snapshot of the topic to its event streams, except to this connection, and
            then calls `shown`.
    """

    def __init__(self, wheel: Wheel, show: Callable[[str, Connection | None], None]) -> None:
        self._wheel = wheel
        self._show = show
        self._pauses: dict[str, _Pause] = {}

    def changed(self, topic: str, but: Connection | None = None) -> None:
        """Show the members now, or at the end of the pause.

        Args:
            topic: The topic.
            but: A connection that receives them otherwise.
        """
        pause = self._pauses.get(topic)
        if pause is None:
            self._show(topic, but)
        else:
            pause.changed = True
            # What connections of earlier changes received lacks this one.
            pause.but = but

    def pauses(self, topic: str) -> bool:
        """Whether a pause of the topic has begun and has not ended."""
        return topic in self._pauses

    def shown(self, topic: str, size: int) -> None:
        """A snapshot with this many bytes was created: if it is large, pause."""
        if size < LARGE:
            return
        until = self._wheel.now() + size / BYTES_PER_SECOND
        pause = self._pauses.get(topic)
        if pause is not None:
            pause.until = until
            return
        self._pauses[topic] = _Pause(until)
        self._wheel.call(functools.partial(self.lapse, topic), until)

    def lapse(self, topic: str, now: float) -> float | None:
        """The pause of the topic is over, unless it became longer; see `wheel.Waiting.due`."""
        pause = self._pauses[topic]
        if now < pause.until:
            return pause.until
        del self._pauses[topic]
        if pause.changed:
            self._show(topic, pause.but)
        return None


class _Pause:
    """The pause of one topic.

    Attributes:
        until: Its end, monotonic seconds.
        changed: Whether the members have changed in it.
        but: A connection that has received the last change otherwise.
    """

    __slots__ = ("but", "changed", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.changed = False
        self.but: Connection | None = None
