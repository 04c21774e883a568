"""Events that the reader of a stream yields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from hanzoai.pubsub.streams.parts import Part


@dataclass(frozen=True, slots=True)
class Started:
    """The stream has begun and has no text yet.

    Attributes:
        meta: The ``meta`` of the writer, or None.
    """

    meta: Any = None


@dataclass(frozen=True, slots=True)
class Delta:
    """The answer has grown; never a repeat.

    Attributes:
        text: The added text; empty if only other parts have grown.
        pieces: Everything that was added, in order: text, new parts, and ``{"text": ...}`` that
            continues the last part.
    """

    text: str
    pieces: list[Any] = field(default_factory=list[Any])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole answer so far, after a late join or a loss. It replaces what the program shows.

    Attributes:
        text: Its text.
        parts: All parts, including the text.
    """

    text: str
    parts: list[Part] = field(default_factory=list[Any])


@dataclass(frozen=True, slots=True)
class Gap:
    """Tokens are missing; the view stays stale until the next snapshot, about 1.5 seconds.

    Attributes:
        first: Number of the first missing token.
        last: Number of the last one.
    """

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """No frame has arrived for a while: the writer may have failed. Another one may take over.

    Attributes:
        seconds: Seconds without a frame: 10 for the first event, then twice as long each time.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete.

    Attributes:
        text: The whole text.
        reason: Why it ended; ``stop`` if the writer gives no reason.
        usage: The ``usage`` of the writer, or None.
    """

    text: str
    reason: str = "stop"
    usage: Any = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """The writer ended the stream before the answer was complete.

    Attributes:
        text: The text so far.
        reason: The reason: ``error`` if the program of the writer failed, the text that a reader
            passed to ``cancel``, or a code of docs/streams.md.
        by: Id of the sender who cancelled it; empty if it was not cancelled.
    """

    text: str
    reason: str
    by: str = ""


StreamEvent: TypeAlias = Started | Delta | Snapshot | Gap | Stalled | Done | Aborted
"""Event of a reader; the last one is ``Done`` or ``Aborted``."""


@dataclass(frozen=True, slots=True)
class Final:
    """How a stream ended.

    Attributes:
        status: ``complete`` or ``aborted``.
        text: The text.
        parts: All parts.
        count: Tokens that were published.
        reason: The finish reason, or why it was aborted.
        by: Id of the sender who cancelled it; empty if it was not cancelled.
        usage: The ``usage`` of the writer.
        whole: Whether the text is complete. False if tokens are missing and the end of a plain
            producer did not contain the text.
    """

    status: Literal["complete", "aborted"]
    text: str
    parts: list[Part]
    count: int
    reason: str
    by: str = ""
    usage: Any = None
    whole: bool = True


__all__ = [
    "Aborted",
    "Delta",
    "Done",
    "Final",
    "Gap",
    "Snapshot",
    "Stalled",
    "Started",
    "StreamEvent",
]
