"""Rows lost before they were read, and their error."""

from __future__ import annotations

from typing import Final, NamedTuple

from hanzoai.pubsub.errors import PubSubError


class Loss(NamedTuple):
    """Positions of a topic that can no longer be read.

    Attributes:
        topic: The topic.
        first: First lost position.
        last: Last lost position.
        restarted: Whether the log was lost and started again; the number of lost rows is then
            unknown.
    """

    topic: str
    first: int
    last: int
    restarted: bool = False

    @property
    def of_log(self) -> bool:
        """Whether the log itself was lost."""
        return self.restarted or self.last < self.first

    def __str__(self) -> str:
        if self.last < self.first:
            return (
                f"The log of {self.topic!a} was lost: it ends at position {self.last}, and rows"
                f" up to {self.first - 1} had been read"
            )
        if self.restarted:
            return (
                f"The log of {self.topic!a} was lost and restarted at position {self.last + 1}:"
                f" messages after position {self.first - 1} cannot be read"
            )
        return (
            f"Rows of {self.topic!a} are no longer retained: positions {self.first} to {self.last}"
            f" ({self.last - self.first + 1:,} rows)"
        )


_KEEP: Final = "Keep the history in Redis, which a restart of the server does not affect."
_RETAIN: Final = "Retain more (history_max_messages, history_max_age, ttl) or read more often."


class DataLossError(PubSubError):
    """Rows were trimmed or lost before they were read, and `failOnDataLoss` is true.

    Attributes:
        topic: Topic of the rows.
        first: Position of the first lost row.
        last: Position of the last lost row.
    """

    first: int
    last: int

    def __init__(self, loss: Loss) -> None:
        super().__init__(
            "data_loss",
            f"{loss}.",
            remedy=(
                f"{_KEEP if loss.of_log else _RETAIN} Option failOnDataLoss=false continues at the"
                " first retained row, and logs what is missing."
            ),
            topic=loss.topic,
        )
        self.first = loss.first
        self.last = loss.last

    @property
    def docs(self) -> str:
        """Address of the description of losses."""
        return "https://pubsub.hanzo.ai/docs/spark/#guarantees-for-readers"
