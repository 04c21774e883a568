"""One publish that is not settled: its messages, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.wire import ErrorInfo, PublishResult
from hanzoai.pubsub.session.ports import Rejected

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.wire import ErrorFrame, PublishedFrame
    from hanzoai.pubsub.session.events import Publish


@dataclass(slots=True, eq=False)
class PublishState:
    """One publish; `results` has a slot for each message, None until it is answered.

    Attributes:
        number: Its place in the order of the calls.
        publish: What the user publishes.
        ref: What names it on the wire.
        sent: Something of it may be published already.
        doubted: It was in flight when a connection was lost: no refusal tells what became of it.
        left: How many slots have no answer.
        since: Milliseconds that publishes had been held back for when this one came.
    """

    number: int
    publish: Publish
    ref: str
    results: list[PublishResult | None]
    left: int
    since: int
    sent: bool = False
    doubted: bool = False

    def open(self) -> list[int]:
        """Slots without an answer."""
        if len(self.results) == self.left:
            return list(range(self.left))
        return [n for n, result in enumerate(self.results) if result is None]


def results_of(frame: PublishedFrame) -> list[PublishResult]:
    """What the server says became of each message."""
    if frame.results is not None:
        return list(frame.results)
    return [
        PublishResult(
            id=frame.id, timestamp=frame.timestamp, seq=frame.seq, duplicate=frame.duplicate
        )
    ]


def rejected(frame: ErrorFrame) -> Rejected:
    """What an error frame says, as an outcome."""
    return Rejected(
        frame.code, frame.message, frame.remedy, frame.topic, frame.retry_after_ms, frame.field
    )


def count_in(counter: list[int], publish: Publish, sign: int) -> None:
    """Add a publish to a number of messages and of bytes, or take it away."""
    counter[0] += sign * len(publish.messages)
    counter[1] += sign * publish.size


def refused_one(frame: ErrorFrame) -> PublishResult:
    """What an error frame says, as the result of one message."""
    return PublishResult(
        error=ErrorInfo(
            code=frame.code,
            message=frame.message,
            remedy=frame.remedy,
            field=frame.field,
            retry_after_ms=frame.retry_after_ms if frame.code == "rate_limited" else None,
        )
    )


def unanswered() -> PublishResult:
    """The result of a message that the server left out."""
    message = "The server sent no result for this message."
    return PublishResult(error=ErrorInfo(code="outcome_unknown", message=message))
