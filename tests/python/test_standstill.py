"""A test that waits for virtual time is reported; objects that the server closes need no close."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.testing import MemoryServer, VirtualClock
from hanzoai.pubsub.testing.standstill import Standstill

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]


class RealTime:
    """Delayed calls of an event loop; the test runs them."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> RealTime:
        self.waiting.append(callback)
        return self

    def cancel(self) -> None:
        self.waiting.clear()

    def passes(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


async def test_each_stall_is_reported_once() -> None:
    clock, real, lines = VirtualClock(), RealTime(), list[str]()
    watch = Standstill(clock, real.call_later, lines.append)
    watch.start()
    for _ in range(3):
        real.passes()
    assert lines == []  # nothing waits for virtual time
    clock.call_later(5, lambda: None)
    clock.call_later(5, lambda: None)
    for _ in range(4):
        real.passes()
    assert len(lines) == 1
    assert lines[0].startswith(
        "virtual time does not advance, 2 timers are pending: advance the clock"
    )
    await clock.advance(1)
    for _ in range(4):
        real.passes()
    assert len(lines) == 2
    watch.stop()
    assert real.waiting == []


async def test_the_report_names_the_lines_where_the_program_waits() -> None:
    clock, real, lines = VirtualClock(), RealTime(), list[str]()
    Standstill(clock, real.call_later, lines.append).start()
    clock.call_later(5, lambda: None)
    never = asyncio.get_running_loop().create_future()

    async def program() -> None:
        await never

    waiting = asyncio.create_task(program())
    await clock.settle()
    for _ in range(2):
        real.passes()
    line = program.__code__.co_firstlineno + 1
    assert f"test_standstill.py:{line}" in lines[0].partition("; waiting at ")[2]
    waiting.cancel()


async def test_advancing_time_is_not_a_stall() -> None:
    clock, real, lines = VirtualClock(), RealTime(), list[str]()
    Standstill(clock, real.call_later, lines.append).start()
    clock.call_later(100, lambda: None)
    for _ in range(5):
        real.passes()
        await clock.advance(1)
    assert lines == []


@pytest.mark.parametrize("server", ["pubsub_memory", "own_server"])
def test_a_hanging_test_prints_the_reason_despite_captured_output(
    pytester: pytest.Pytester, server: str
) -> None:
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        """
        import os

        import pytest

        from hanzoai.pubsub.testing import MemoryServer

        @pytest.fixture
        async def own_server():
            async with MemoryServer() as server:
                yield server

        async def test_it_hangs(SERVER):
            SERVER._standstill._patience = 0.01
            SERVER._standstill.stop()
            SERVER._standstill.start()
            tell = SERVER.tell

            def tell_and_die(sentence):
                tell(sentence)
                os._exit(3)

            SERVER.tell = tell_and_die
            ps = SERVER.client()
            await ps.connect()
            SERVER.cut()
            await ps.publish("x", {"data": 1})
        """.replace("SERVER", server)
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 3
    result.stderr.fnmatch_lines(
        [
            "*::test_it_hangs: virtual time does not advance, * pending: advance*; waiting at "
            "test_a_hanging_test_prints_the_reason_despite_captured_output.py:*"
        ]
    )


async def test_a_subscription_of_a_client_that_the_server_closes_is_dropped_without_a_warning(
    pubsub_memory: MemoryServer, recwarn: pytest.WarningsRecorder
) -> None:
    ps = pubsub_memory.client()
    sub = await ps.subscribe("a.b")
    await pubsub_memory.publish("a.b", {"data": 1})
    async for _ in sub:
        break
    del sub
    gc.collect()
    await pubsub_memory.clock.settle()
    assert [str(warning.message) for warning in recwarn] == []
    assert pubsub_memory.received[-1]["type"] == "unsubscribe"


async def test_a_subscription_of_a_client_of_the_program_is_dropped_with_a_warning(
    pubsub_memory: MemoryServer,
) -> None:
    async with PubSubClient(pubsub_memory.url, pubsub_memory.token()) as ps:
        sub = await ps.subscribe("a.b")
        kept = [sub]
        del sub
        with pytest.warns(ResourceWarning, match="without unsubscribe"):
            kept.clear()
