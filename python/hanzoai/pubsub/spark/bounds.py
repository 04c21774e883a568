"""Start of a query and end of a batch, from the options and the positions of the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.spark.options import invalid
from hanzoai.pubsub.spark.planning import Standing
from hanzoai.pubsub.spark.source_config import BEFORE_ALL, EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.spark.source_config import Bound


def beginnings(bound: Bound, standings: Mapping[str, Standing]) -> dict[str, int]:
    """Return the positions that count as read when a query begins, by topic.

    Args:
        bound: The requested start; other topics begin at their first retained row.
        standings: Positions of the topics.

    Raises:
        InvalidOption: A position is beyond the newest of its topic.
    """
    named: Mapping[str, int] = {} if isinstance(bound, str) else bound
    other = LATEST if bound == "latest" else EARLIEST
    found = {
        topic: _place(named.get(topic, other), topic, standing, "startingOffsets")
        for topic, standing in standings.items()
        if standing.last
    }
    for topic, place in named.items():
        # There is no log yet, or no longer: if one begins, its losses are known.
        if place > BEFORE_ALL:
            found.setdefault(topic, place)
    return found


def endings(bound: Bound, standings: Mapping[str, Standing]) -> dict[str, int]:
    """Return the positions of the last rows of a batch, by topic.

    Args:
        bound: The requested end; other topics end at their newest row.
        standings: Positions of the topics.

    Raises:
        InvalidOption: A position is beyond the newest of its topic.
    """
    named: Mapping[str, int] = {} if isinstance(bound, str) else bound
    known = {**dict.fromkeys(named, Standing(1, 0)), **standings}
    return {
        topic: _place(named.get(topic, LATEST), topic, standing, "endingOffsets")
        for topic, standing in known.items()
    }


def places_at(standings: Mapping[str, Standing]) -> dict[str, int]:
    """Return the position before the first message that is not older than the requested time."""
    return {
        topic: standing.at - 1
        for topic, standing in standings.items()
        if standing.last and standing.at is not None
    }


def _place(place: int, topic: str, standing: Standing, option: str) -> int:
    if place == LATEST:
        return standing.last
    if place in (EARLIEST, BEFORE_ALL):
        return standing.first - 1
    if place > standing.last:
        words = ", -1 or -2" if option == "startingOffsets" else " or -1"
        raise invalid(
            option,
            f"is beyond the newest position of {topic!a}, which is {standing.last}",
            f"Give a position of that log{words}.",
        )
    return place
