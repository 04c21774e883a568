"""Client of the hub protocol of pub0sub: counted publishes to many topics over plain TCP.

    from hanzoai.pubsub.hub import HubClient

    async with HubClient("hub://127.0.0.1:13000") as hub:
        async with hub.subscribe("topic_1", "topic_2") as messages:
            reached = await hub.publish(["topic_1", "topic_2"], b"hello")
            print(reached, await messages.recv())

`hanzoai.pubsub.hub.blocking` has the same client for programs without asyncio.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanzoai.pubsub.hub import blocking
    from hanzoai.pubsub.hub.client import HubClient, HubMessage, HubSubscription

__all__ = ["HubClient", "HubMessage", "HubSubscription", "blocking"]


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
