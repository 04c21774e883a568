from __future__ import annotations

import asyncio

import httpx
import pytest

from hanzoai.pubsub.errors import (
    ClosedError,
    OperationTimeout,
)
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.rest import Rest
from tests.python.rest.rig import QuickClock, Tokens, make_options, one


class Mute(httpx.AsyncBaseTransport):
    """Accepts requests, and answers when the test requests it."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()
        self.go_on = asyncio.Event()
        self.requests = 0
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        self.taken.set()
        await self.go_on.wait()
        return httpx.Response(200, json={"id": "msg_1", "timestamp": 9, "seq": 3, "members": []})


async def test_close_ends_a_question_at_once_and_waits_for_a_publish(clock: QuickClock) -> None:
    mute = Mute()
    rest = Rest(make_options(), Tokens(), clock, transport=mute)
    async with asyncio.timeout(60):
        question = asyncio.create_task(rest.perform(rest_calls.presence("a.b")))
        publish = asyncio.create_task(rest.publish(one()))
        await mute.taken.wait()
        closing = asyncio.create_task(rest.close(4))
        with pytest.raises(ClosedError):
            await question
        mute.go_on.set()
        assert (await publish).seq == 3
        await closing


async def test_a_cancelled_close_leaves_no_call_behind(clock: QuickClock) -> None:
    mute = Mute()
    rest = Rest(make_options(), Tokens(), clock, transport=mute)
    async with asyncio.timeout(60):
        publish = asyncio.create_task(rest.publish(one()))
        await mute.taken.wait()
        closing = asyncio.create_task(rest.close(60))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert publish.done()
        with pytest.raises(OperationTimeout):
            await publish
    assert mute.closed


async def test_close_without_a_timeout_leaves_no_call_behind(clock: QuickClock) -> None:
    mute = Mute()
    rest = Rest(make_options(), Tokens(), clock, transport=mute)
    async with asyncio.timeout(60):
        publish = asyncio.create_task(rest.publish(one()))
        await mute.taken.wait()
        await rest.close()
        assert publish.done()
        with pytest.raises(OperationTimeout) as caught:
            await publish
        assert caught.value.outcome_unknown
        with pytest.raises(ClosedError):
            await rest.publish(one())
    assert mute.requests == 1
