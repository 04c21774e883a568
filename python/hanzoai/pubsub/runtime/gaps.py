"""Describes gaps, and logs those that no handler receives."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.log_text import log_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.values import Gap

logger = logging.getLogger("hanzoai.pubsub")

_REASONS: Final[Mapping[str, str]] = {
    "history_trimmed": "the history of the server no longer reaches that far back, or one replay "
    "cannot contain them",
    "log_reset": "the server lost its history, or messages of other nodes",
    "node_changed": "the client moved to a node that has its own history",
    "slow_consumer": "the program reads too slowly, and the queue of the subscription was full",
    "unproven": "the server cannot prove that none is missing",
}

_POSSIBLE: Final = ("node_changed", "unproven")
"""Reasons for which possibly no message is missing."""

_LOGGED: Final = 1_000
"""Maximum remembered topics with a logged gap; above it, a gap of the oldest may be logged
again.
"""


def describe_gap(gap: Gap) -> str:
    """The missing messages and the reason, in one sentence."""
    if gap.missed is None:
        what = "Perhaps messages" if gap.reason in _POSSIBLE else "Messages"
    else:
        what = f"{gap.missed:,} message{'s' if gap.missed != 1 else ''}"
    known = gap.missed is not None and gap.from_ is not None and gap.to is not None
    where = f" (positions {gap.from_} to {gap.to})" if known else ""
    verb = "was" if gap.missed == 1 else "were"
    return f"{what} of topic {gap.topic}{where} {verb} missed: {_REASONS[gap.reason]}."


def warn(gap: Gap, logged: dict[str, None]) -> None:
    """Log the first gap of each topic that no handler receives."""
    if gap.topic in logged:
        return
    logged[gap.topic] = None
    if len(logged) > _LOGGED:
        del logged[next(iter(logged))]
    logger.warning(
        '%s To handle gaps, pass `on_gap` (a function, or "raise") or `state_loader` to '
        "subscribe(), or iterate `sub.events()`. Further gaps of this topic are not logged for "
        "this subscription; `sub.stats` counts them.",
        log_text(describe_gap(gap)),
    )
