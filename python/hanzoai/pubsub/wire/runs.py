"""`Run`: messages that follow each other in the log of one topic, as most do that arrive together.

What reads them need not look at each message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanzoai.pubsub.generated.wire import Message

if TYPE_CHECKING:
    from collections.abc import Iterable


class Run(list[Message]):
    """Messages of one topic with consecutive positions, none of them a change of presence.

    It is not changed after it was made.

    Args:
        messages: At least one.
        first: Position of the first.
    """

    __slots__ = ("first",)

    def __init__(self, messages: Iterable[Message], first: int) -> None:
        super().__init__(messages)
        self.first = first
