"""The log of one topic in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from pubsub_server.backplane import Standing
from pubsub_server.backplanes.replay_bounds import first_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pubsub_server.backplane import Entry
    from pubsub_server.backplanes.retention import Keep


class TopicLog:
    """Retained messages of one topic, and its numbering.

    Attributes:
        start: Position of the first message that this log numbered.
        last: Position of the newest one; ``start - 1`` before the first.
        keep: Its retention.
        by_id: Retained messages by sender and id.
        lost_at: Unix ms at which the newest message that is not in the log was stored; 0 for none.
    """

    __slots__ = ("by_id", "entries", "keep", "last", "last_at", "lost_at", "start")

    def __init__(self, start: int, keep: Keep) -> None:
        self.start = start
        self.keep = keep
        self.last = start - 1
        self.last_at = 0
        self.lost_at = 0
        self.entries: deque[Entry] = deque()
        self.by_id: dict[tuple[tuple[str, str], str], Entry] = {}

    def alive(self, now: int) -> list[Entry]:
        """Messages that are retained at this time, oldest first."""
        return [entry for entry in self.entries if entry.expires > now]

    def lost_since(self, now: int) -> int:
        """When the newest message that is no longer retained was stored; 0 for none."""
        expired = [entry.stored for entry in self.entries if entry.expires <= now]
        return max(self.lost_at, expired[-1]) if expired else self.lost_at


def read(
    log: TopicLog, now: int, after: int | None, since: int | None, newest: int | None
) -> tuple[list[Entry], bool, bool]:
    """Messages, whether some are missing, and whether the log began after the position."""
    entries = log.alive(now)
    if after is not None:
        restarted = after < log.start - 1 or after > log.last
        mark = log.start - 1 if restarted else after
        place = bisect_right(entries, mark, key=_position)
        entries = entries[place:] if place else entries
        short = len(entries) < log.last - mark
    else:
        restarted = False
        if since is not None:
            place = bisect_right(entries, since, key=_stored)
            entries = entries[place:] if place else entries
        short = since is not None and log.lost_since(now) > since
    if newest is not None and newest < len(entries):
        entries = list(islice(entries, len(entries) - newest, None))
        short = short or after is not None
    return entries, short, restarted


def behind(
    log: TopicLog, now: int, after: int, limit: int
) -> tuple[Sequence[Entry], bool, bool, bool]:
    """The first messages after a position; 0 is before all messages.

    Returns:
        The messages; whether there are more; whether a position up to the last of them (or of the
        log, if there are none) is missing; whether the log began after the position.
    """
    restarted = after != 0 and (after < log.start - 1 or after > log.last)
    mark = log.start - 1 if restarted or not after else after
    place = bisect_right(log.entries, mark, key=_position)
    alive = (entry for entry in islice(log.entries, place, None) if entry.expires > now)
    found = list(islice(alive, limit + 1))
    chosen = first_of(found, limit)
    last = (chosen[-1].seq if chosen else None) or log.last
    return chosen, len(found) > len(chosen), len(chosen) < last - mark, restarted


def stand(topic: str, log: TopicLog, now: int, at: int | None) -> Standing:
    """See `backplane.Standing`."""
    entries = log.entries
    first = next((entry.seq for entry in entries if entry.expires > now), None) or log.last + 1
    if at is None:
        return Standing(topic, first, log.last)
    place = bisect_left(entries, at, key=_time)
    later = (entry.seq for entry in islice(entries, place, None) if entry.expires > now)
    return Standing(topic, first, log.last, next(later, None) or log.last + 1)


def _position(entry: Entry) -> int:
    return entry.seq or 0


def _time(entry: Entry) -> int:
    return entry.timestamp


def _stored(entry: Entry) -> int:
    return entry.stored
