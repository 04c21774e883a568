"""The topics of the chat, and who writes to them."""

from __future__ import annotations

from typing import Final

ROOM: Final = "demo.chat.lobby"
"""Messages of the users, and presence."""
SCRIBE: Final = "scribe"
"""Id of the service that answers. Readers ignore frames of other senders."""


def answer_topic(question_id: str) -> str:
    """The topic of the answer to a message. Each answer has its own topic and history."""
    return f"demo.answers.{question_id}"
