"""One unsettled publish: its messages and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.wire import ErrorInfo, PublishResult
from hanzoai.pubsub.model import trusted
from hanzoai.pubsub.session.ports import Rejected

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import ErrorFrame, PublishedFrame
    from hanzoai.pubsub.session.requests import Publish

UNANSWERED: Final = PublishResult(
    error=ErrorInfo(code="outcome_unknown", message="The server sent no result for this message.")
)
"""The result of a message that is missing in the server's answer."""

_STATED: Final = {"id", "timestamp", "seq", "duplicate"}
"""Fields of a result that is not an error."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class PublishState:
    """One publish."""

    number: int  # its place in the order of the calls
    publish: Publish
    ref: str  # on the wire
    results: list[PublishResult | None]  # a slot for each message, None until it is answered
    # Milliseconds for which publishes had been held back when it was last queued; infinite after it
    # counted as slowed.
    since: float
    sent: bool = False  # a part of it may already be published
    doubted: bool = False  # it was in flight when a connection was lost: a rejection proves nothing
    newer: PublishState | None = None  # one of its key, perhaps published before it

    def unanswered(self) -> list[int]:
        """Slots without an answer."""
        return [n for n, result in enumerate(self.results) if result is None]


def result_of(frame: PublishedFrame, sent_id: str | None) -> PublishResult:
    """The result in the server's answer to one message, with the sent id if it states none."""
    fields = {
        "id": frame.id or sent_id,
        "timestamp": frame.timestamp,
        "seq": frame.seq,
        "duplicate": frame.duplicate,
        "error": None,
    }
    return trusted(PublishResult, fields, _STATED)


def rejection(frame: ErrorFrame) -> Rejected:
    """The outcome for an error frame."""
    return Rejected(**frame.model_dump(exclude={"type", "ref"}))


def count_in(counter: list[int], publish: Publish, sign: int) -> None:
    """Add or subtract a publish from a count of messages and bytes."""
    counter[0] += sign * len(publish.messages)
    counter[1] += sign * publish.size
