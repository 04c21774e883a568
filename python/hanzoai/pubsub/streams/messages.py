"""What readers and writers receive: messages, and the answer to their subscription."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub.errors import OperationTimeout

if TYPE_CHECKING:
    from hanzoai.pubsub.runtime.subscription import Subscription
    from hanzoai.pubsub.streams.reading import Incoming
    from hanzoai.pubsub.values import Message


def sender_of(message: Message) -> str:
    """Return the id of the sender of a message; empty if the server sends none."""
    return (message.sender and message.sender.id) or ""


def incoming(message: Message) -> Incoming:
    """Convert a message for the logic of a reader."""
    return {"type": message.type, "data": message.data, "sender": sender_of(message)}


async def answered(subscription: Subscription[Any]) -> None:
    """Wait for the server's answer, however long it is not reachable: the client keeps trying."""
    while True:
        with suppress(OperationTimeout):
            await subscription
            return


__all__ = ["answered", "incoming", "sender_of"]
