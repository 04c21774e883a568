"""Encoders: convert messages and answers of the hub to the bytes of a protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pubsub_server.backplane import Entry


class Liveness(Enum):
    """How the hub keeps a connection alive and detects a dead client."""

    ANSWERS = "answers"
    """The client answers `Encoder.keepalive`. A silent client is disconnected."""
    COMMENTS = "comments"
    """`Encoder.keepalive` needs no answer. It keeps proxies from closing the connection."""
    NONE = "none"
    """The protocol has no keep-alive: only the transport reports a closed connection."""


class Attends(Enum):
    """How a protocol supports presence."""

    CHANGES = "changes"
    """A subscriber is a member of its topics, and gets each change as a message."""
    SNAPSHOTS = "snapshots"
    """A subscriber is a member on request, and gets all members after each change."""
    NEVER = "never"
    """The protocol has no presence."""


class Encoder(ABC):
    """One wire format.

    A listener creates one and passes it to the hub with each connection. The hub calls `message`
    once per message, regardless of the number of connections with this encoder, and sends the same
    bytes to all of them. An encoder has no state of a connection.

    Attributes:
        name: The label of its connections in `/metrics`.
        keepalive: Bytes that the hub sends on idle connections; empty with `Liveness.NONE`.
        liveness: The purpose of `keepalive`.
        presence: How its connections receive presence.
        resubscribes: Whether a client whose subscription failed can subscribe again on the same
            connection. If not, the hub closes the connection.
        echoes: Whether a connection receives its own messages.
        queue_bytes: Unsent bytes that the hub holds for one connection before it counts as a slow
            consumer, if that is more than the setting `send_queue_bytes`.
    """

    name: ClassVar[str]
    keepalive: ClassVar[bytes] = b""
    liveness: ClassVar[Liveness] = Liveness.NONE
    presence: ClassVar[Attends] = Attends.NEVER
    resubscribes: ClassVar[bool] = True
    echoes: ClassVar[bool] = True
    queue_bytes: ClassVar[int] = 0

    @abstractmethod
    def message(self, entry: Entry) -> bytes:
        """Encode a delivered message."""

    def frame(self, frame: Mapping[str, object]) -> bytes:
        """Encode an answer, an error or a notice of the hub, given as a HIP-56 frame.

        Returns:
            Empty bytes, the default, if the protocol has no such frame.
        """
        return b""
