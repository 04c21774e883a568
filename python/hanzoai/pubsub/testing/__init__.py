"""Tools for tests of your program: a server in memory, a clock that you move, pytest fixtures.

A program that reconnects, tested without a socket and without waiting::

    from hanzoai.pubsub import Gap, Message
    from hanzoai.pubsub.testing import MemoryServer


    async def test_a_lost_message_is_reported_as_a_gap():
        async with MemoryServer() as server:
            ps = server.client()
            sub = await ps.subscribe("chat.1")
            await server.publish("chat.1", {"data": "hello"})
            assert (await anext(sub)).data == "hello"
            with server.refusing():  # the network is down
                await server.publish("chat.1", {"data": "lost"})
                server.forget_history()
            await server.clock.advance_until(lambda: ps.state == "connected")
            await server.publish("chat.1", {"data": "hello again"})
            events = sub.events()
            gap, message = await anext(events), await anext(events)
            assert isinstance(gap, Gap) and gap.missed == 1
            assert isinstance(message, Message) and message.data == "hello again"
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hanzoai.pubsub.testing.clock import VirtualClock
    from hanzoai.pubsub.testing.dev import dev_token
    from hanzoai.pubsub.testing.server import MemoryServer
    from hanzoai.pubsub.testing.threaded import ThreadedServer

# Loaded at first use: pytest imports this package in every run that has it installed.
_HOMES: Final = {
    "MemoryServer": "server",
    "ThreadedServer": "threaded",
    "VirtualClock": "clock",
    "dev_token": "dev",
}


if not TYPE_CHECKING:  # with this function, type checkers accept every name

    def __getattr__(name: str) -> object:
        module = _HOMES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


__all__ = ["MemoryServer", "ThreadedServer", "VirtualClock", "dev_token"]
