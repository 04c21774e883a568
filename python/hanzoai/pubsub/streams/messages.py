"""Converts messages for the logic of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.streams.reading import Incoming
    from hanzoai.pubsub.values import Message


def sender_of(message: Message) -> str:
    """Return the id of the sender of a message; empty if the server sends none."""
    return (message.sender and message.sender.id) or ""


def incoming(message: Message) -> Incoming:
    """Convert a message for the logic of a reader."""
    return {"type": message.type, "data": message.data, "sender": sender_of(message)}


__all__ = ["incoming", "sender_of"]
