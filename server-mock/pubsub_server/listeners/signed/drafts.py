"""Converts frames to publications."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from hanzoai.pubsub.soc import to_data
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from pubsub_server.listeners.signed.modes import Parameters


def draft_of(topic: str, frame: bytes, parameters: Parameters, message: str | None = None) -> Draft:
    """A signed frame as a publication.

    Args:
        topic: Its name in the hub.
        frame: The verified frame.
        parameters: Id and owner.
        message: Id of the message, by which the backplane drops repeats; None creates one.
    """
    data = orjson.dumps(to_data(frame, parameters.id, parameters.owner))
    return Draft(topic, "message", data, None, message, None)
