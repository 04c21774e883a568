"""The event loop of the blocking client in a green thread."""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
from asyncio.events import (
    _get_running_loop,  # pyright: ignore[reportPrivateUsage]
    _set_running_loop,  # pyright: ignore[reportPrivateUsage]
)
from types import ModuleType
from typing import Any

import pytest

from hanzoai.pubsub.blocking.portal import HandlerThreads, Portal
from hanzoai.pubsub.runtime.threads import GreenEventLoop
from hanzoai.pubsub.runtime.tokens import fetch_token
from hanzoai.pubsub.values import TokenContext


class Switching(selectors.DefaultSelector):
    """Runs other green threads while it waits, as the selector of gevent does."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []
        self.begun: asyncio.AbstractEventLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.found.append(_get_running_loop())
        if self.begun is not None:
            _set_running_loop(self.begun)
        return super().select(timeout)


def test_other_green_threads_do_not_find_the_loop_while_it_waits() -> None:
    waiting = Switching()
    loop = GreenEventLoop(waiting)

    async def run() -> None:
        for _ in range(3):
            await asyncio.sleep(0.001)
            assert asyncio.get_running_loop() is loop

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
    assert set(waiting.found) == {None}


def test_the_loop_of_another_green_thread_stays_its_running_loop() -> None:
    waiting = Switching()
    loop = GreenEventLoop(waiting)
    other = asyncio.new_event_loop()

    async def run() -> None:
        waiting.begun = other
        await asyncio.sleep(0.001)
        assert asyncio.get_running_loop() is loop
        waiting.begun = None
        waiting.found.clear()
        await asyncio.sleep(0.001)
        assert set(waiting.found) == {other}

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
    other.close()


@pytest.mark.parametrize("patched", [False, True])
def test_the_blocking_client_uses_such_a_loop_if_gevent_has_patched_threads(
    monkeypatch: pytest.MonkeyPatch, *, patched: bool
) -> None:
    def is_module_patched(name: str) -> bool:
        return patched and name == "threading"

    gevent: Any = ModuleType("gevent.monkey")
    gevent.is_module_patched = is_module_patched
    monkeypatch.setitem(sys.modules, "gevent.monkey", gevent)
    portal = Portal()

    async def running() -> object:
        return asyncio.get_running_loop()

    assert isinstance(portal.call(running), GreenEventLoop) is patched
    portal.stop()


def test_other_green_threads_do_not_find_the_loop_while_it_starts_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, found = threading.Thread.start, list[Any]()

    def switching(thread: threading.Thread) -> None:
        found.append(_get_running_loop())
        start(thread)

    def get_token(context: TokenContext) -> str:
        assert context.reason == "connect"
        return "three"

    async def run() -> None:
        threads = HandlerThreads()
        assert await threads.run(lambda: 1) == 1
        assert await asyncio.to_thread(lambda: 2) == 2
        assert (await fetch_token(get_token, TokenContext("connect", 0))).value == "three"
        threads.stop()

    monkeypatch.setattr(threading.Thread, "start", switching)
    with asyncio.Runner(loop_factory=lambda: GreenEventLoop(Switching())) as runner:
        runner.run(run())
    assert found[:3] == [None, None, None]
