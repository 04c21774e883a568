"""State changes that a program reads."""

from __future__ import annotations

import asyncio

from hanzoai.pubsub.runtime.failures import reason_of
from hanzoai.pubsub.runtime.states import StateStream
from hanzoai.pubsub.values import StateChange


def change(reason: str = "", code: str | int | None = None) -> StateChange:
    return StateChange("connecting", "reconnecting", code, reason)


async def test_a_stream_gives_what_comes_and_ends() -> None:
    ended: list[StateStream] = []
    stream = StateStream(ended.append)
    reading = asyncio.create_task(_all(stream))
    await asyncio.sleep(0)
    stream.put(change("one"))
    stream.put(change("two"))
    stream.finish()
    async with asyncio.timeout(60):
        assert await reading == ["one", "two"]
    assert ended == [stream]


async def _all(stream: StateStream) -> list[str]:
    return [found.reason async for found in stream]


async def test_an_unread_iteration_keeps_the_newest_changes() -> None:
    stream = StateStream(lambda stream: None)
    for number in range(1_000):
        stream.put(change(str(number)))
    stream.finish()
    seen = await _all(stream)
    assert (len(seen), seen[-1]) == (256, "999")


async def test_it_can_be_left_early() -> None:
    ended: list[StateStream] = []
    stream = StateStream(ended.append)
    stream.put(change())
    await stream.aclose()
    assert await _all(stream) == []
    assert ended == [stream]


def test_the_reason_for_a_missing_connection_is_stated_in_words() -> None:
    assert reason_of(None, "connecting") == "no attempt has failed yet; the state is connecting."
    assert reason_of(change("The host is gone.", 1006), "connecting") == "The host is gone."
    assert reason_of(change("Busy.", 1013), "connecting") == "Busy (1013)."
    assert reason_of(change("refused"), "connecting") == "refused."
    assert reason_of(change(), "connecting") == "the state is reconnecting."
