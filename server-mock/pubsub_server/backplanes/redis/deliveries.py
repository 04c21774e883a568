"""What comes from Redis, handed to the hub in order; a hole is filled from the log first."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from pubsub_server.backplanes.redis.records import PRESENCE, unpack
from pubsub_server.backplanes.redis.servers import LINK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.backplanes.redis.reader import Reader
    from pubsub_server.backplanes.redis.tracks import Track, Tracks
    from pubsub_server.tasks import Tasks

logger = logging.getLogger(__name__)

AGAIN_AFTER: Final = 0.02
AGAIN_AT_MOST: Final = 1.0
"""Seconds; each wait is twice the one before, up to this."""


class Deliveries:
    """The way of the messages of all topics into this node.

    Args:
        tracks: Where each topic stands.
        reader: Of the logs.
        tasks: Keeps what fetches.
        members: Gets the changes of members.
        sure: Whether this node has received all recent messages of a topic's shard.

    Attributes:
        healed: Holes that were filled from a log.
    """

    def __init__(
        self,
        tracks: Tracks,
        reader: Reader,
        tasks: Tasks,
        members: Callable[[bytes], None],
        sure: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self._tracks = tracks
        self._reader = reader
        self._tasks = tasks
        self._members = members
        self._sure = sure
        self._deliver: Callable[[Entry], None] = lambda entry: None
        self._lack: Callable[[str], None] = lambda topic: None
        # Their first messages wait until the log has been asked for what precedes them.
        self._unproven: dict[str, Track] = {}
        self.healed = 0

    def start(
        self, deliver: Callable[[Entry], None], lack: Callable[[str], None] | None = None
    ) -> None:
        """See `backplane.Backplane`."""
        self._deliver = deliver
        self._lack = lack or self._lack

    @property
    def unproven(self) -> list[str]:
        """Topics new to this node, whose first messages wait for `discover`."""
        return list(self._unproven)

    def take(self, payload: bytes) -> None:
        """Take what a channel has brought; never raises."""
        try:
            if payload.startswith(PRESENCE):
                self._members(payload)
                return
            self.catch_up(unpack(payload))
        except Exception:
            # The connection that brought it has other topics to bring.
            logger.exception("cannot deliver a message from Redis")

    def catch_up(self, found: Iterable[Entry]) -> None:
        """Take messages of one topic, oldest first."""
        for entry in found:
            new = entry.seq is not None and entry.topic not in self._tracks
            if new and not self._sure(entry.topic):
                self.doubt(entry.topic)
            deliver, hole = self._tracks.take(entry)
            if deliver:
                self._deliver(entry)
            elif hole is not None:
                self.heal(hole)

    async def discover(self, topic: str, since: int) -> None:
        """Deliver the messages of a topic that is new to this node or opening, oldest first.

        A subscriber by pattern has no position of such a topic, so it cannot see that something
        lacks before the first message that it gets.

        Args:
            topic: One that a pattern matches.
            since: Messages that are not newer than this, Unix ms, are not delivered.
        """
        known = self._tracks.get(topic)
        if known is not None and not known.unproven and known.last is not None:
            return
        track = self.doubt(topic)
        log = await self._reader.one(topic, "since", since)
        if self._unproven.pop(topic, None) is not track or self._tracks.get(topic) is not track:
            return
        found = () if log is None else log.entries
        if log is not None and log.lost > since and not (found and found[0].seq == log.start):
            self._lack(topic)
        self.settle(track, None if log is None else log.last, found)

    def doubt(self, topic: str) -> Track:
        """Let the messages of a topic wait for `discover`: patterns may lack what precedes them."""
        track = self._unproven.get(topic)
        if track is None or self._tracks.get(topic) is not track:
            track = self._unproven[topic] = self._tracks.hold(topic)
        return track

    def settle(self, track: Track, last: int | None, found: Sequence[Entry] = ()) -> None:
        """Deliver what waited while a topic was opening; see `Tracks.settle`."""
        ready, again = self._tracks.settle(track, last, found)
        self._deliver_all(ready)
        if again:
            self.heal(track)

    def heal(self, track: Track) -> None:
        """Deliver what the log has and this node has not, and then what waited for that."""
        self._tasks.spawn(self._heal(track))

    async def _heal(self, track: Track) -> None:
        pause = AGAIN_AFTER
        while track.held is not None and track.last is not None:
            try:
                log = await self._reader.one(track.topic, "after", track.last)
            except LINK_ERRORS:
                # The sooner the better: the log keeps so many messages and no more.
                await asyncio.sleep(pause)
                pause = min(AGAIN_AT_MOST, pause * 2)
                continue
            except Exception:
                # While a hole is open its topic waits.
                logger.exception("cannot read the missing messages of a topic; trying again")
                await asyncio.sleep(AGAIN_AT_MOST)
                continue
            if self._tracks.get(track.topic) is not track:
                # Its last subscriber left, and those who came since have the log from replays.
                return
            self.healed += 1
            found = () if log is None else log.entries
            if log is not None:
                first = max(track.last, log.start - 1) + 1
                known = {entry.seq or 0 for entry in (*found, *(track.held or []))}
                if sum(first <= seq <= log.last for seq in known) <= log.last - first:
                    self._lack(track.topic)
            ready, _ = self._tracks.settle(track, None if log is None else log.last, found)
            self._deliver_all(ready)

    def _deliver_all(self, ready: Iterable[Entry]) -> None:
        for entry in ready:
            self._deliver(entry)
