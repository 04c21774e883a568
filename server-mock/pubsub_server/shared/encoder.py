"""How the hub's messages and answers become bytes on one wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pubsub_server.backplane import Entry


class Liveness(Enum):
    """How the hub keeps a connection alive and notices that its client is gone."""

    ANSWERS = "answers"
    """The client answers `Encoder.keepalive`. A silent client is disconnected."""
    COMMENTS = "comments"
    """`Encoder.keepalive` needs no answer. It keeps proxies from closing the connection."""
    NONE = "none"
    """The protocol has no such thing: the transport alone says when the client is gone."""


class Attends(Enum):
    """What presence means on a wire."""

    CHANGES = "changes"
    """A subscriber is a member of its topics, and gets each change as a message."""
    SNAPSHOTS = "snapshots"
    """A subscriber is a member if it asks to be, and gets all members after each change."""
    NEVER = "never"
    """Presence does not exist on this wire."""


class Encoder(ABC):
    """One wire format. A listener makes one and gives it to the hub with each connection.

    The hub calls `message` once per message, however many connections have this encoder, and sends
    all of them the same bytes. An encoder keeps no state of a connection.

    Attributes:
        name: The label of its connections in `/metrics`.
        keepalive: What the hub sends on idle connections; empty with `Liveness.NONE`.
        liveness: What `keepalive` is for.
        presence: What its connections hear of presence.
        resubscribes: Whether a client whose subscription failed can subscribe again on the same
            connection. If not, the hub closes the connection.
        echoes: Whether a connection gets what it published itself.
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
            Empty bytes, the default, if this wire has no such thing.
        """
        return b""
