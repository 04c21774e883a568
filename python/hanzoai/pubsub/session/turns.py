"""Selects the next publish when the rate of a client is used up.

Publishes wait in three lanes: messages, the newest values of keys (policy `latest`), and background
publishes, such as token streams. The lanes take turns, 4:1:1, by smooth weighted round robin; a
message that comes alone goes next. Within a lane the order is that of the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hanzoai.pubsub.session.publish_state import PublishState

Lane: TypeAlias = Literal["messages", "latest", "background"]

WEIGHTS: Final[Mapping[Lane, int]] = {"messages": 4, "latest": 1, "background": 1}


def lane_of(entry: PublishState) -> Lane:
    """The lane in which a publish waits."""
    publish = entry.publish
    if publish.background:
        return "background"
    return "messages" if publish.key is None else "latest"


def next_turn(
    queue: Iterable[PublishState], saved: Mapping[Lane, int]
) -> tuple[PublishState, dict[Lane, int]]:
    """The publish whose turn it is, and the credit of the lanes after it; `saved`: before it."""
    heads: dict[Lane, PublishState] = {}
    for entry in queue:
        heads.setdefault(lane_of(entry), entry)
    # Saved credit stays small, so that a single message is sent next.
    credit: dict[Lane, int] = {
        lane: min(saved.get(lane, 0), 1) + weight
        for lane, weight in WEIGHTS.items()
        if lane in heads
    }
    lane: Lane = max(credit, key=lambda lane: credit[lane])
    credit[lane] -= sum(WEIGHTS[waiting] for waiting in credit)
    return heads[lane], credit
