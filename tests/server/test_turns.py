"""Work waits for its turn of the event loop when the time of a turn is used up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pubsub_server.shared.turns import SECONDS, Turns

if TYPE_CHECKING:
    from collections.abc import Callable


class Work:
    """Work that takes a known time, and its turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = ""
        self.turns = Turns(asyncio.get_running_loop(), lambda: self.now)

    def of(self, name: str, share: float = 0.6) -> Callable[[], None]:
        def work() -> None:
            self.now += share * SECONDS
            self.done += name

        return work

    async def wait(self, name: str, *expected: float) -> None:
        await self.turns.wait(*expected)
        self.done += name


async def test_work_begins_in_order_of_arrival_until_the_time_of_a_turn_is_used_up() -> None:
    work = Work()
    for name in "12345":
        work.turns.do(work.of(name))
    assert (work.done, work.turns.waiting) == ("12", 3)
    for done in ("1234", "12345"):
        assert not work.turns.free
        await asyncio.sleep(0)
        assert work.done == done
    await asyncio.sleep(0)
    assert work.turns.free


async def test_the_turn_in_which_the_last_waiting_work_was_done_has_no_more_time() -> None:
    work = Work()
    for name in "123":
        work.turns.enqueue(work.of(name))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (work.done, work.turns.waiting) == ("123", 0)
    work.now += SECONDS
    assert not work.turns.free


async def test_time_without_work_is_not_counted() -> None:
    work = Work()
    work.turns.do(work.of("1"))
    await asyncio.sleep(0)
    work.now += 100 * SECONDS
    assert work.turns.free


async def test_work_that_waits_again_in_its_turn_comes_after_the_others() -> None:
    work = Work()

    def twice(name: str) -> Callable[[], None]:
        def begin() -> None:
            work.of(name, 1)()
            work.turns.enqueue(work.of(name, 1))

        return begin

    for name in "abc":
        work.turns.enqueue(twice(name))
    for count in range(7):
        assert len(work.done) == min(count, 6)
        await asyncio.sleep(0)
    assert work.done == "abcabc"


async def test_tasks_share_a_turn_if_little_work_is_expected_of_them() -> None:
    work = Work()
    expected: list[tuple[float, ...]] = [(0.4 * SECONDS,)] * 4 + [()] * 2
    tasks = [asyncio.create_task(work.wait(str(n), *each)) for n, each in enumerate(expected)]
    turns = [""]
    while not all(each.done() for each in tasks):
        await asyncio.sleep(0)
        if work.done != turns[-1]:
            turns.append(work.done)
    assert turns == ["", "012", "01234", "012345"]


async def test_a_cancelled_task_leaves_its_turn_to_the_next_one() -> None:
    work = Work()
    one, two = (asyncio.create_task(work.wait(name)) for name in "12")
    await asyncio.sleep(0)
    one.cancel()
    await two
    assert work.done == "2"


async def test_a_failure_leaves_the_others_their_turns() -> None:
    work, failures = Work(), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def fail() -> Any:
        raise RuntimeError("planted")

    work.turns.enqueue(fail)
    work.turns.enqueue(work.of("1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert work.done == "1"
    assert [str(each) for each in failures] == ["planted"]
