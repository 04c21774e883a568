"""`Gap`: messages that are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

GapReason: TypeAlias = Literal[
    "history_trimmed", "log_reset", "node_changed", "slow_consumer", "unproven"
]


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of one topic that could not be delivered, reported in their place (REC-2).

    Attributes:
        topic: The concrete topic, or the pattern if the topic is unknown.
        from_: Position of the first missing message; None if the server has no positions.
        to: Position of the last missing message; None if unknown.
        missed: Number of missing messages; None if unknown.
        reason: ``history_trimmed``: no longer retained, or older than the newest 10,000 messages,
            which one replay contains. ``log_reset``: the numbers start again, because the server
            lost its history, or a mesh lost messages between two nodes. ``node_changed``: the
            client moved to another node, which has its own history. ``slow_consumer``: the queue
            of this subscription was full. ``unproven``: the server cannot prove that none is
            missing.
    """

    topic: str
    from_: int | None
    to: int | None
    missed: int | None
    reason: GapReason
