"""Messages as the logic of streams takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.streams.reading import Incoming
    from hanzoai.pubsub.values import Message


def sender_of(message: Message) -> str:
    """Id of the sender of a message; empty if the server names none."""
    return (message.sender and message.sender.id) or ""


def incoming(message: Message) -> Incoming:
    """A message for the logic of a reader."""
    return {"type": message.type, "data": message.data, "sender": sender_of(message)}


__all__ = ["incoming", "sender_of"]
