"""Frames as the hub takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from hanzoai.pubsub.soc import to_data
from pubsub_server.shared.requests import Draft

if TYPE_CHECKING:
    from pubsub_server.listeners.signed.modes import Parameters


def draft_of(topic: str, frame: bytes, parameters: Parameters) -> Draft:
    """A signed frame as a publication.

    Args:
        topic: As the hub names it.
        frame: Verified.
        parameters: Id and owner.
    """
    data = orjson.dumps(to_data(frame, parameters.id, parameters.owner))
    return Draft(topic, "message", data, None, None, None)
