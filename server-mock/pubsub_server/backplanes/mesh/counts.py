"""Counters of a node of a mesh."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Counters of one node, since its start.

    Attributes:
        forwarded: Messages sent to other nodes, once for each node.
        forwarded_bytes: Bytes of these messages with their frames, on connections that have ended.
        received: Messages received from other nodes.
        duplicates: Received messages that this node already had.
        unwanted: Received messages without a subscriber here.
        refused: Connections and requests of peers that break a rule.
        stalled: Connections closed because the peer did not read.
        lost: Connections in use that ended without a close frame.
    """

    forwarded: int = 0
    forwarded_bytes: int = 0
    received: int = 0
    duplicates: int = 0
    unwanted: int = 0
    refused: int = 0
    stalled: int = 0
    lost: int = 0
