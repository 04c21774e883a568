"""The topics of the chat, and who writes to them."""

from __future__ import annotations

from typing import Final

ROOM: Final = "demo.chat.lobby"
"""Messages of the people, and who is present."""
SCRIBE: Final = "scribe"
"""Id of the service that answers. Readers ignore frames of other senders."""


def answer_topic(question_id: str) -> str:
    """The topic of the answer to a message: one for each, so that its history is its own."""
    return f"demo.answers.{question_id}"
