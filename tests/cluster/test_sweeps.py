"""The periodic search for missed messages: it must not delay the messages that arrive."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pubsub_server.backplanes.redis import deliveries
from pubsub_server.backplanes.redis.deliveries import CatchingUp
from pubsub_server.backplanes.redis.layout import Layout
from pubsub_server.backplanes.redis.reader import Sweep
from pubsub_server.backplanes.redis.tracks import Tracks
from pubsub_server.tasks import Tasks
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    import pytest

SHARDS = 4


class Store:
    """Replaces reader, deliveries, roster and lease.

    Attributes:
        asked: The shards that were searched, in order.
        silent: Shards that do not answer.
        late: If set, answers arrive when this event is set.
        unbroken: Time since which every shard has lost nothing.
        lost: Number of times that the lease was notified of a loss.
    """

    unproven: Sequence[str] = ()

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.silent: set[int] = set()
        self.late: asyncio.Event | None = None
        self.unbroken = 1
        self.lost = 0

    async def sweep(self, shard: int, since: int, silence: int, least: int = 0) -> Sweep:
        self.asked.append(shard)
        if shard in self.silent:
            await asyncio.Event().wait()
        answer = Sweep(10, self.unbroken, ())
        if self.late is not None:
            await self.late.wait()
        return answer

    async def heads(self, known: Mapping[str, int], silence: int) -> dict[str, int]:
        return {}

    async def catch_up(self) -> bool:
        return True

    def interrupted(self, shards: Sequence[int], since: int) -> None:
        pass

    def lose(self, why: str) -> None:
        self.lost += 1


@asynccontextmanager
async def searching(store: Any) -> AsyncGenerator[CatchingUp]:
    tasks = Tasks(asyncio.get_running_loop(), logging.getLogger(__name__), "test")
    catching_up = CatchingUp(
        Layout("t", SHARDS), store, Tracks(10), store, lambda topic: True, lambda topic: None,
        roster=store, lease=store, opened=0, silence=1, tasks=tasks,
    )  # fmt: skip
    yield catching_up
    await tasks.stop()


async def test_a_sweep_searches_one_shard_at_a_time() -> None:
    store = Store()
    async with searching(store) as catching_up:
        catching_up.sweep()
        await until(lambda: bool(store.asked), True)
        assert store.asked == [0]


async def test_shards_that_are_restored_one_after_the_other_report_their_losses_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    async with searching(store) as catching_up:
        await catching_up.restored(range(SHARDS))
        store.unbroken = 2
        for shard in range(SHARDS):
            await catching_up.restored([shard])
        await until(lambda: store.lost, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "Redis may have lost its last acknowledged writes in 4 of 4 shards"
    ]


async def test_a_sweep_that_finds_a_loss_reports_it_when_the_other_shards_have_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deliveries, "SWEEP_EVERY", 3_600.0)
    monkeypatch.setattr(deliveries, "TELL_LOSSES_WITHIN", 3_600.0)
    store = Store()
    async with searching(store) as catching_up:
        await catching_up.restored(range(SHARDS))
        store.asked.clear()
        store.unbroken = 2
        catching_up.sweep()
        await until(lambda: store.lost, 1)
        assert store.asked == [*range(SHARDS)]
    assert [record.getMessage() for record in caplog.records] == [
        "Redis may have lost its last acknowledged writes in 4 of 4 shards"
    ]


async def test_a_shard_that_does_not_answer_does_not_prevent_the_report_of_a_loss_in_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deliveries, "TELL_LOSSES_WITHIN", 0.01)
    store = Store()
    async with searching(store) as catching_up:
        await catching_up.restored(range(SHARDS))
        store.unbroken = 2
        store.silent.add(3)
        await catching_up.restored([0])
        await until(lambda: store.lost, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "Redis may have lost its last acknowledged writes in 3 of 4 shards"
    ]


async def test_a_loss_that_several_searches_of_a_shard_find_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    async with searching(store) as catching_up:
        await catching_up.restored(range(SHARDS))
        late = store.late = asyncio.Event()
        waiting: list[asyncio.Task[None]] = []
        for store.unbroken in (1, 2):
            waiting.append(asyncio.create_task(catching_up.restored([0])))
            await until(partial(len, store.asked), len(store.asked) + 1)
        store.late = None
        await catching_up.restored(range(SHARDS))
        await until(lambda: store.lost, 1)
        late.set()
        await asyncio.gather(*waiting)
        await catching_up.restored(range(SHARDS))
        # What a search may have begun, such as another report.
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        assert store.lost == 1
    assert [record.getMessage() for record in caplog.records] == [
        "Redis may have lost its last acknowledged writes in 4 of 4 shards"
    ]
