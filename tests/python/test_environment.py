"""The environment of a client."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.runtime.environment import environment_for
from hanzoai.pubsub.settings.options import read_options
from hanzoai.pubsub.testing import MemoryServer, VirtualClock
from hanzoai.pubsub.transports.memory import MemoryTransport
from hanzoai.pubsub.transports.sse import SseTransport
from hanzoai.pubsub.transports.websocket import WebSocketTransport

if TYPE_CHECKING:
    import pytest


async def test_an_address_on_the_network_means_real_time_and_real_transports() -> None:
    environment = environment_for("ws://127.0.0.1/ws")
    assert isinstance(environment.clock, SystemClock)
    assert environment.http_transport() is None
    options = read_options("ws://127.0.0.1/ws", "t")
    assert isinstance(environment.dial("websocket", options), WebSocketTransport)
    assert isinstance(environment.dial("sse", options), SseTransport)
    assert 0 <= environment.random() < 1


async def test_waits_do_not_depend_on_the_random_generator_of_the_program() -> None:
    """Workers with the same seed would otherwise reconnect at the same time."""
    environment = environment_for("ws://127.0.0.1/ws")
    state = random.getstate()
    first = environment.random()
    assert random.getstate() == state
    random.setstate(state)
    assert environment.random() != first


async def test_a_server_of_this_process_brings_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryServer() as server:
        monkeypatch.setenv("HANZO_PUBSUB_URL", server.url)
        for environment in (environment_for(server.url), environment_for(None)):
            assert environment.clock is server.clock
            assert isinstance(environment.clock, VirtualClock)
            options = read_options("ws://127.0.0.1/ws", "t")
            assert isinstance(environment.dial("websocket", options), MemoryTransport)
            assert environment.http_transport() is not None
