"""Subscriptions of this node at one peer, and the acknowledgements of the peer.

An acknowledgement has no request id, so at most one request of each kind is unacknowledged. Changes
made in the meantime are sent together in the next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.topics import is_wildcard
from pubsub_server.backplanes.mesh.codec import (
    MAX_LIST,
    MAX_TOPIC,
    PATTERNS,
    PATTERNS_ACK,
    PATTERNS_END,
    PATTERNS_END_ACK,
    SUBSCRIBE,
    SUBSCRIBE_ACK,
    UNSUBSCRIBE,
    UNSUBSCRIBE_ACK,
    frame,
    topic_list,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

RESENDS: Final = 3
"""Maximum repeats of an unacknowledged subscription before the connection ends (Z-20)."""
UNWANTED_MAX: Final = 1_024
"""Maximum unwanted topics of a peer that wait for the next unsubscription."""


class Unacknowledged(Exception):
    """The peer has not acknowledged a subscription, although it was sent again."""


class Lane:
    """Requests of one kind to one peer.

    Args:
        opcode: Of the request.
        window: Seconds after which an acknowledgement is late.
        resends: How often a request is sent again.
        strict: Whether `due` raises if no acknowledgement came; otherwise the request counts as
            acknowledged.
    """

    def __init__(self, opcode: int, window: float, *, resends: int, strict: bool) -> None:
        self._opcode = opcode
        self._window = window
        self._resends = resends
        self._strict = strict
        self._pending: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._times = 0
        self._deadline = 0.0
        # Outstanding acknowledgements of repeats.
        self._owed = 0
        self._last = 0
        self._done = 0

    @property
    def unsent(self) -> int:
        """Names that wait for the next request."""
        return len(self._pending)

    @property
    def asked(self) -> int:
        """Number of the newest name that was added; see `done`."""
        return self._last

    @property
    def done(self) -> int:
        """Number up to which all names are acknowledged or have been taken back."""
        return self._done if self._sent or self._pending else self._last

    def add(self, name: str) -> None:
        """Put a name into the next request."""
        self._last += 1
        self._pending[name] = self._last

    def discard(self, name: str) -> None:
        """Take a name out of the next request, and of repeats of the last one."""
        self._sent.pop(name, None)
        self._pending.pop(name, None)

    def due(self, now: float) -> bytes:
        """The requests to send now.

        Raises:
            Unacknowledged: No acknowledgement came, and no further request is sent.
        """
        if self._times and now >= self._deadline:
            if self._times <= self._resends and self._sent:
                return self._send(now)
            if self._strict and self._sent:
                raise Unacknowledged
            self._finish()
        if self._times or not self._pending:
            return b""
        size = 0
        for name, number in self._pending.items():
            size += 1 + len(name)
            if size > MAX_LIST:
                break
            self._sent[name] = number
        for name in self._sent:
            del self._pending[name]
        return self._send(now)

    def acknowledged(self) -> bool:
        """An acknowledgement came; False if it is of a request that was sent before."""
        if self._owed:
            self._owed -= 1
            return False
        if self._times:
            # Repeats are acknowledged too, after the request itself.
            self._owed = self._times - 1
            self._finish()
        return True

    def _send(self, now: float) -> bytes:
        self._times += 1
        self._deadline = now + self._window
        return frame(self._opcode, topic_list(name.encode("latin-1") for name in self._sent))

    def _finish(self) -> None:
        if self._sent:
            self._done = next(reversed(self._sent.values()))
        self._sent = {}
        self._times = 0


class Announcements:
    """The subscriptions and unsubscriptions of this node at one peer.

    Args:
        window: Seconds after which an acknowledgement is late.
        wildcards: Whether the peer knows patterns; a plain peer does not.
    """

    def __init__(self, window: float, *, wildcards: bool) -> None:
        def lane(opcode: int, *, strict: bool) -> Lane:
            return Lane(opcode, window, resends=RESENDS if strict else 0, strict=strict)

        self._wildcards = wildcards
        self._topics = lane(SUBSCRIBE, strict=True)
        self._topics_end = lane(UNSUBSCRIBE, strict=False)
        self._patterns = lane(PATTERNS, strict=True)
        self._patterns_end = lane(PATTERNS_END, strict=False)
        self._lanes = (self._topics, self._topics_end, self._patterns, self._patterns_end)
        self._by_ack = {
            SUBSCRIBE_ACK: self._topics,
            UNSUBSCRIBE_ACK: self._topics_end,
            PATTERNS_ACK: self._patterns,
            PATTERNS_END_ACK: self._patterns_end,
        }

    def want(self, names: Iterable[str]) -> None:
        """Subscribe to topics and patterns."""
        for name in names:
            pair = self._pair(name)
            if pair is not None:
                pair[0].add(name)
                pair[1].discard(name)

    def unwant(self, names: Iterable[str]) -> None:
        """Unsubscribe from topics and patterns."""
        for name in names:
            pair = self._pair(name)
            if pair is not None:
                pair[0].discard(name)
                pair[1].add(name)

    @property
    def unsent(self) -> int:
        """Names that wait for the next request."""
        return sum(lane.unsent for lane in self._lanes)

    def repeat_unwanted(self, topic: str) -> None:
        """Unsubscribe again from a topic that the peer has forwarded in vain (Z-22).

        Ignored while `UNWANTED_MAX` names wait, and for a text that no request can hold.
        """
        if self._topics_end.unsent < UNWANTED_MAX and _fits(topic):
            self._topics_end.add(topic)

    def due(self, now: float) -> bytes:
        """The requests to send now.

        Raises:
            Unacknowledged: The peer does not follow the protocol.
        """
        return b"".join(lane.due(now) for lane in self._lanes)

    def acknowledged(self, opcode: int) -> bool:
        """An acknowledgement came; False if it is of a request that was sent before."""
        return self._by_ack[opcode].acknowledged()

    @property
    def asked(self) -> tuple[int, int]:
        """How much has been asked for, to be compared with `reached`."""
        return self._topics.asked, self._patterns.asked

    def reached(self, asked: tuple[int, int]) -> bool:
        """Whether all that had been asked for then is acknowledged."""
        return self._topics.done >= asked[0] and self._patterns.done >= asked[1]

    def _pair(self, name: str) -> tuple[Lane, Lane] | None:
        if not is_wildcard(name):
            return self._topics, self._topics_end
        return (self._patterns, self._patterns_end) if self._wildcards else None


def _fits(topic: str) -> bool:
    try:
        return len(topic.encode("latin-1")) <= MAX_TOPIC
    except UnicodeEncodeError:
        return False
