from __future__ import annotations

import asyncio
import itertools
import socket
import traceback
from typing import Any

import httpx
import pytest
import respx

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.errors import (
    AuthRefused,
    ConnectionFailed,
    OperationTimeout,
    RateLimited,
    Unavailable,
)
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.rest import Rest
from hanzoai.pubsub.settings.options import RetryOptions
from tests.passing import let_pass
from tests.python.rest.rig import (
    ACCEPTED,
    BASE,
    MESSAGES,
    QuickClock,
    Tokens,
    make_options,
    one,
    problem,
    sent,
)

WITHIN = 60.0
"""Seconds of a call whose time runs out: more than a busy machine takes for an attempt."""


async def test_a_refusal_that_asks_to_wait_is_repeated_not_before_its_time(
    rest: Rest, server: Any, clock: QuickClock
) -> None:
    slow = httpx.Response(429, json={}, headers={"Retry-After": "2"})
    route = server.post(MESSAGES).mock(side_effect=[slow, problem(503, "unavailable"), ACCEPTED])
    assert (await rest.publish(one(id=None))).seq == 3
    assert route.call_count == 3
    assert clock.slept == [2.0, 1.0]


async def test_a_wait_beyond_the_time_of_the_call_is_not_begun(
    rest: Rest, server: Any, clock: QuickClock
) -> None:
    slow = httpx.Response(429, json={}, headers={"Retry-After": "60"})
    route = server.post(MESSAGES).mock(return_value=slow)
    with pytest.raises(RateLimited) as caught:
        await rest.publish(one(), timeout=10)
    assert caught.value.retry_after == 60
    assert route.call_count == 1
    assert clock.slept == []


async def test_attempts_are_bounded(rest: Rest, server: Any, clock: QuickClock) -> None:
    route = server.post(MESSAGES).mock(return_value=problem(503, "unavailable"))
    with pytest.raises(Unavailable):
        await rest.publish(one())
    assert route.call_count == 4
    assert clock.slept == [0.5, 1.0, 2.0]


async def test_a_lost_answer_is_asked_for_again_with_the_same_id(rest: Rest, server: Any) -> None:
    route = server.post(MESSAGES).mock(side_effect=[httpx.ReadError("cut"), ACCEPTED])
    await rest.publish(one())
    assert [sent(route, n)["id"] for n in range(2)] == ["msg_1", "msg_1"]


@pytest.mark.parametrize(
    ("id", "features"), [(None, None), ("msg_1", frozenset({"ack"})), ("msg_1", frozenset[str]())]
)
async def test_a_lost_answer_is_not_asked_for_again_where_that_could_publish_twice(
    rest: Rest, server: Any, id: str | None, features: frozenset[str] | None
) -> None:
    rest.features = features
    route = server.post(MESSAGES).mock(side_effect=httpx.ReadTimeout("late"))
    with pytest.raises(OperationTimeout) as caught:
        await rest.publish(one(id=id))
    assert caught.value.outcome_unknown
    assert caught.value.code == "outcome_unknown"
    assert caught.value.id == id
    assert route.call_count == 1


async def test_a_server_fault_is_repeated_only_where_that_is_safe(rest: Rest, server: Any) -> None:
    route = server.post(MESSAGES).mock(return_value=problem(500, "internal"))
    with pytest.raises(Unavailable):
        await rest.publish(one(id=None))
    assert route.call_count == 1
    with pytest.raises(Unavailable):
        await rest.publish(one())
    assert route.call_count == 5


async def test_a_connection_that_never_came_about_is_always_tried_again(
    rest: Rest, server: Any
) -> None:
    rest.features = frozenset()
    refused = httpx.ConnectError("refused")
    route = server.post(MESSAGES).mock(side_effect=[refused, refused, ACCEPTED])
    await rest.publish(one(id=None))
    assert route.call_count == 3


async def test_an_earlier_attempt_of_unknown_outcome_is_not_forgotten(
    rest: Rest, server: Any
) -> None:
    failures = [httpx.ReadError("cut"), *[httpx.ConnectError("refused")] * 3]
    server.post(MESSAGES).mock(side_effect=failures)
    with pytest.raises(OperationTimeout) as caught:
        await rest.publish(one())
    assert caught.value.outcome_unknown


class Withheld(Tokens):
    """A token for the first attempt only."""

    def __init__(self, failure: Exception | None) -> None:
        super().__init__()
        self.failure = failure
        self.asked = 0

    async def current(self) -> str:
        self.asked += 1
        if self.asked > 1:
            if self.failure is not None:
                raise self.failure
            await run_out_of_time()
        return self.token


async def run_out_of_time() -> None:
    """Wait forever, while the time of the call passes."""
    let_pass(WITHIN)
    await asyncio.Event().wait()


async def test_a_publish_whose_attempts_all_failed_before_sending_is_known_not_to_be_published(
    server: Any,
) -> None:
    server.post(MESSAGES).mock(side_effect=httpx.ConnectError("refused"))
    retry = RetryOptions(base=0.001, cap=0.001)
    rest = Rest(make_options(retry=retry), Withheld(None), QuickClock())
    with pytest.raises(OperationTimeout, match="get_token returned no token") as caught:
        await rest.publish(one(), timeout=WITHIN)
    assert not caught.value.outcome_unknown
    await rest.close()


async def test_a_rejected_token_without_a_successor_publishes_nothing(server: Any) -> None:
    class Endless(Tokens):
        async def replace(self, rejected: str) -> str | None:
            await run_out_of_time()
            raise AssertionError

    server.post(MESSAGES).mock(return_value=problem(401, "token_expired"))
    rest = Rest(make_options(), Endless(), QuickClock())
    with pytest.raises(OperationTimeout, match="get_token returned no token") as caught:
        await rest.publish(one(), timeout=WITHIN)
    assert not caught.value.outcome_unknown
    await rest.close()


async def test_a_token_that_is_refused_does_not_hide_that_an_earlier_attempt_may_have_succeeded(
    server: Any,
) -> None:
    for message, outcome in ((one(), OperationTimeout), (None, AuthRefused)):
        server.route().mock(side_effect=httpx.ReadError("cut"))
        rest = Rest(make_options(), Withheld(AuthRefused()), QuickClock())
        with pytest.raises(outcome) as caught:
            await (rest.perform(rest_calls.topics()) if message is None else rest.publish(message))
        assert getattr(caught.value, "outcome_unknown", None) == (True if message else None)
        await rest.close()


async def test_no_connection_at_all_is_connection_failed(rest: Rest, server: Any) -> None:
    server.post(MESSAGES).mock(side_effect=httpx.ConnectError("refused"))
    with pytest.raises(ConnectionFailed) as caught:
        await rest.publish(one())
    assert "127.0.0.1" in caught.value.message
    assert isinstance(caught.value.__cause__, httpx.ConnectError)


async def test_the_traceback_of_an_unreachable_server_has_no_frames_of_the_http_library() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # without `listen`, it refuses connections
        url = f"ws://127.0.0.1:{held.getsockname()[1]}/ws"
        async with PubSubClient(url, "t", rest_attempts=1) as ps:
            with pytest.raises(ConnectionFailed) as caught:
                await ps.presence("demo.a")
    shown = "".join(traceback.format_exception(caught.value))
    assert "httpx.ConnectError" in shown
    assert "/httpx/" not in shown
    assert "/httpcore/" not in shown


async def test_a_silent_server_ends_in_a_timeout_of_unknown_outcome() -> None:
    never = asyncio.Event()

    async def hang(request: httpx.Request) -> httpx.Response:
        await never.wait()
        raise AssertionError

    carried = httpx.MockTransport(hang)
    rest = Rest(make_options(), Tokens(), QuickClock(), transport=carried)
    with pytest.raises(OperationTimeout) as caught:
        await rest.publish(one(), timeout=0.05)
    assert (caught.value.outcome_unknown, caught.value.id) == (True, "msg_1")
    with pytest.raises(OperationTimeout) as caught:
        await rest.perform(rest_calls.topics(), timeout=0.05)
    assert not caught.value.outcome_unknown
    await rest.close()


async def test_no_time_left_sends_nothing(rest: Rest) -> None:
    with pytest.raises(OperationTimeout) as caught:
        await rest.publish(one(), timeout=0)
    assert not caught.value.outcome_unknown


async def test_jitter_is_full_and_capped() -> None:
    clock = QuickClock()
    options = make_options(retry=RetryOptions(base=1, cap=3), rest_attempts=6, operation_timeout=60)
    randoms = itertools.cycle([0.0, 1.0, 0.5, 1.0, 0.25])
    rest = Rest(options, Tokens(), clock, random=lambda: next(randoms))
    with respx.mock as server:
        server.get(f"{BASE}/v1/topics").mock(return_value=httpx.Response(503))
        with pytest.raises(Unavailable):
            await rest.perform(rest_calls.topics())
    assert clock.slept == [0.0, 2.0, 1.5, 3.0, 0.75]
    await rest.close()
