"""Client of the event stream: topics over plain TCP, at most once.

    from hanzoai.pubsub.eventstream import EventStreamClient

    async with EventStreamClient("events://127.0.0.1:1002") as stream:
        await stream.publish("status", "online")
        async with stream.subscribe("*") as events:
            async for event in events:
                print(event.topic, event.text)

`hanzoai.pubsub.eventstream.blocking` has the same client for programs without asyncio.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.eventstream import blocking
    from hanzoai.pubsub.eventstream.client import Event, EventStreamClient, EventSubscription

__all__ = ["Event", "EventStreamClient", "EventSubscription", "blocking"]


# Loaded at first use: a server needs only the codec.
if not TYPE_CHECKING:  # with this function, type checkers accept every name

    def __getattr__(name: str) -> object:
        if name == "blocking":
            return importlib.import_module(f"{__name__}.blocking")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{__name__}.client"), name)
        globals()[name] = value
        return value
