"""Reads of the members of a topic that several connections share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pubsub_server.hub.topic_reads import TopicReads
from pubsub_server.shared.roster import Present

if TYPE_CHECKING:
    from collections.abc import Sequence


class Store:
    """Answers reads on request."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[Present]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.reads = TopicReads(
            self.read, lambda work: self.tasks.append(asyncio.ensure_future(work))
        )

    async def read(self, topics: Sequence[str]) -> Present:
        answer: asyncio.Future[Present] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    async def ask(self, topic: str = "a") -> asyncio.Task[object]:
        task: asyncio.Task[object] = asyncio.create_task(self.reads.read(topic))
        for _ in range(3):
            await asyncio.sleep(0)
        return task


async def test_who_asks_during_a_read_shares_the_next_one() -> None:
    store = Store()
    first, second, third = await store.ask(), await store.ask(), await store.ask()
    other = await store.ask("b")
    assert len(store.answers) == 2
    store.answers[0].set_result(Present({}, {}))
    await first
    assert not second.done()
    second.cancel()
    store.answers[1].set_result(Present({}, {}))
    store.answers[2].set_result(Present({}, {}))
    assert await third is not await other
    await asyncio.gather(*store.tasks)
    assert not store.reads._waiting


async def test_an_unexpected_error_reaches_all_who_wait() -> None:
    store = Store()
    first, second = await store.ask(), await store.ask()
    store.answers[0].set_exception(RuntimeError("broken"))
    for each in (first, second):
        with pytest.raises(RuntimeError, match="broken"):
            await each
    await asyncio.gather(*store.tasks)
    assert not store.reads._waiting


async def test_those_who_wait_for_a_read_that_is_cancelled_do_not_hang() -> None:
    store = Store()
    first, second = await store.ask(), await store.ask()
    store.tasks[0].cancel()
    for each in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await each
    assert not store.reads._waiting
