"""Counters of sockets and connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PeerStats:
    """Counters of one connection.

    Attributes:
        address: Address of the peer, if the transport knows it.
        sent: Messages passed to the connection.
        dropped: Messages lost because the peer's queue was full, or because the connection ended
            before they were passed to it.
        received: Messages received from the peer, matching or not.
        queued: Messages that currently wait for the peer.
    """

    address: str
    sent: int
    dropped: int
    received: int
    queued: int


@dataclass(frozen=True, slots=True)
class SocketStats:
    """Counters of a socket since it was created.

    Attributes:
        sent: Messages passed to `send`.
        received: Messages that `recv` returned.
        dropped_by_peer: Messages lost because the queue of a peer was full, or because its
            connection ended while they waited, summed over all current and former peers.
        dropped_by_queue: Matching messages lost because the receive queue was full.
        filtered: Messages that no prefix matched.
        peers: The current connections.
        refused: Connections closed because the peer violated the protocol, by reason:
            ``bad_hello``, ``no_hello``, ``bad_type``, ``bad_frame``, ``oversize`` or
            ``unexpected_data``.
    """

    sent: int
    received: int
    dropped_by_peer: int
    dropped_by_queue: int
    filtered: int
    peers: tuple[PeerStats, ...]
    refused: Mapping[str, int]
