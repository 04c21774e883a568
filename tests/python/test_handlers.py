"""User code that the client calls."""

from __future__ import annotations

import asyncio
from typing import Any

from hanzoai.pubsub.runtime.handlers import Handlers, call
from hanzoai.pubsub.runtime.inbox import Inbox
from hanzoai.pubsub.settings.options import ReceiveQueue
from hanzoai.pubsub.values import Gap, Message, PresenceChange

GAP = Gap("a", 1, 2, 2, "history_trimmed")


async def test_a_handler_is_called_and_awaited_where_that_is_needed() -> None:
    called: list[object] = []

    async def later(value: object) -> None:
        await asyncio.sleep(0)
        called.append(value)

    await call(called.append, 1)
    await call(later, 2)
    assert called == [1, 2]


async def test_each_kind_of_entry_goes_to_its_handler_in_one_order() -> None:
    handled: list[Any] = []
    inbox = Inbox(("a",), ReceiveQueue(), lambda: None)
    message = Message(id="1", topic="a", type="t", data=1, timestamp=1)
    presence = PresenceChange("a", (), "snapshot")
    inbox.put([message])
    inbox.put_other(GAP)
    inbox.put_other(presence)
    inbox.put([message])
    inbox.finish()
    handlers = Handlers(
        handled.append, handled.append, handled.append, None, lambda error, topic: None
    )
    await handlers.run(inbox)
    assert handled == [message, GAP, presence, message]
    inbox = Inbox(("a",), ReceiveQueue(), lambda: None)
    inbox.put([message])
    inbox.put_other(GAP)
    inbox.put_other(presence)
    inbox.finish()
    await Handlers(None, None, None, None, lambda error, topic: None).run(inbox)


async def test_the_loader_gets_its_own_copy_of_the_positions_and_may_fail() -> None:
    reported: list[tuple[Exception, str | None]] = []
    handled: list[Gap] = []
    positions = {"a": 2}

    def load(gap: Gap, given: Any) -> None:
        given.clear()
        raise ZeroDivisionError

    handlers = Handlers(
        None, None, handled.append, load, lambda error, topic: reported.append((error, topic))
    )
    await handlers.gap(GAP, positions)
    assert positions == {"a": 2}
    assert handled == [GAP]
    ((error, topic),) = reported
    assert (type(error), topic) == (ZeroDivisionError, "a")


async def test_a_handler_that_lets_a_cancellation_through_gets_the_next_message() -> None:
    reported: list[Exception] = []
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(message.id)
        if message.id == "1":
            other = asyncio.create_task(asyncio.sleep(5))
            other.cancel()
            await other

    inbox = Inbox(("a",), ReceiveQueue(), lambda: None)
    for name in ("1", "2"):
        inbox.put([Message(id=name, topic="a", type="t", data=1, timestamp=1)])
    inbox.finish()
    handlers = Handlers(handle, None, None, None, lambda error, topic: reported.append(error))
    async with asyncio.timeout(60):
        await handlers.run(inbox)
    assert seen == ["1", "2"]
    assert [type(error) for error in reported] == [RuntimeError]


async def test_a_handler_is_cancelled_with_the_task_that_calls_it() -> None:
    async def handle(_: object) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(call(handle, 1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()
