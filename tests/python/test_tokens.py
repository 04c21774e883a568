"""Token callbacks of the program."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.errors import AuthError, AuthRefused, ClosedError, InvalidOption
from hanzoai.pubsub.runtime.tokens import TokenSource, fetch_token
from hanzoai.pubsub.settings.options import read_options
from hanzoai.pubsub.testing import VirtualClock
from hanzoai.pubsub.values import Token, TokenContext

if TYPE_CHECKING:
    from collections.abc import Callable

CONTEXT = TokenContext("connect", 0)


def source(get_token: Callable[..., object], clock: VirtualClock | None = None) -> TokenSource:
    options = read_options("ws://127.0.0.1/ws", get_token=get_token)
    return TokenSource(options, clock or VirtualClock())


async def test_a_coroutine_function_runs_in_the_loop_and_a_function_in_a_thread() -> None:
    async def in_loop(context: TokenContext) -> str:
        assert threading.current_thread() is threading.main_thread()
        return "a"

    def in_thread(context: TokenContext) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return "b"

    class Both:
        async def __call__(self, context: TokenContext) -> str:
            assert threading.current_thread() is threading.main_thread()
            return "c"

    async with asyncio.timeout(60):
        assert (await fetch_token(in_loop, CONTEXT)).value == "a"
        assert (await fetch_token(in_thread, CONTEXT)).value == "b"
        assert (await fetch_token(Both(), CONTEXT)).value == "c"

        def returns_coroutine(context: TokenContext) -> object:
            return in_loop(context)

        assert (await fetch_token(returns_coroutine, CONTEXT)).value == "a"


async def test_a_token_object_states_its_expiry() -> None:
    async def get_token(context: TokenContext) -> Token:
        return Token("t", 123)

    assert await fetch_token(get_token, CONTEXT) == Token("t", 123)
    assert "t'" not in repr(Token("t", 123))


@pytest.mark.parametrize("bad", [None, 7, "", "   ", "two words", b"bytes"])
async def test_a_malformed_token_is_rejected_without_showing_it(bad: object) -> None:
    async def get_token(context: TokenContext) -> object:
        return bad

    with pytest.raises(InvalidOption) as caught:
        await fetch_token(get_token, CONTEXT)
    assert "words" not in str(caught.value)


async def test_the_exception_of_a_thread_comes_out() -> None:
    def get_token(context: TokenContext) -> str:
        raise AuthRefused("no")

    def stop(context: TokenContext) -> str:
        raise StopIteration

    def leave(context: TokenContext) -> str:
        raise SystemExit

    async with asyncio.timeout(60):
        with pytest.raises(AuthRefused):
            await fetch_token(get_token, CONTEXT)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await fetch_token(stop, CONTEXT)
        with pytest.raises(RuntimeError, match="get_token raised SystemExit"):
            await fetch_token(leave, CONTEXT)


async def test_concurrent_requests_for_a_token_share_one_answer() -> None:
    calls: list[TokenContext] = []
    release = asyncio.Event()

    async def get_token(context: TokenContext) -> str:
        calls.append(context)
        await release.wait()
        return f"token-{len(calls)}"

    tokens = source(get_token)
    first = asyncio.create_task(tokens.fetch("connect", 0))
    second = asyncio.create_task(tokens.current())
    await asyncio.sleep(0)
    release.set()
    async with asyncio.timeout(60):
        assert (await first, await second) == (Token("token-1"), "token-1")
    assert len(calls) == 1


async def test_a_token_callback_is_cancelled_when_no_call_waits_for_it() -> None:
    cancelled = asyncio.Event()

    async def get_token(context: TokenContext) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    tokens = source(get_token)
    asking = asyncio.create_task(tokens.fetch("connect", 0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    async with asyncio.timeout(60):
        await cancelled.wait()
        await tokens.close()
    assert not [task for task in asyncio.all_tasks() if "get_token" in task.get_name()]


async def test_a_token_that_has_ended_is_renewed_before_a_request() -> None:
    clock = VirtualClock()
    calls: list[TokenContext] = []

    async def get_token(context: TokenContext) -> Token:
        calls.append(context)
        return Token(f"t{len(calls)}", clock.wall_ms() / 1000 + 10)

    tokens = source(get_token, clock)
    assert [await tokens.current(), await tokens.current()] == ["t1", "t1"]
    await clock.advance(10)
    assert await tokens.current() == "t2"
    assert [call.reason for call in calls] == ["connect", "expiring"]


async def test_the_lifetime_stated_by_the_server_also_applies_to_the_next_token() -> None:
    clock = VirtualClock()
    calls = 0

    async def get_token(context: TokenContext) -> str:
        nonlocal calls
        calls += 1
        return f"t{calls}"

    tokens = source(get_token, clock)
    assert (await tokens.fetch("connect", 0)).expires_at is None
    await clock.advance(5)
    tokens.learn(55_000)
    renewed = await tokens.fetch("expiring", 0)
    assert renewed.expires_ms == clock.wall_ms() + 60_000


async def test_a_refused_token_is_replaced_once_and_a_fixed_one_never() -> None:
    reasons: list[tuple[str, int]] = []

    async def get_token(context: TokenContext) -> str:
        reasons.append((context.reason, context.attempt))
        return f"t{len(reasons)}"

    tokens = source(get_token)
    first = await tokens.current()
    assert await tokens.replace(first) == "t2"
    assert await tokens.replace(first) == "t2"
    assert await tokens.replace("t2") == "t3"
    assert reasons == [("connect", 0), ("rejected", 0), ("rejected", 1)]
    fixed = TokenSource(read_options("ws://127.0.0.1/ws", "fixed"), VirtualClock())
    assert await fixed.current() == "fixed"
    assert await fixed.replace("fixed") is None


async def test_rejections_of_requests_are_counted_until_one_is_accepted() -> None:
    attempts: list[int] = []

    async def get_token(context: TokenContext) -> str:
        if context.reason == "rejected":
            attempts.append(context.attempt)
        return "kept" if context.attempt < 2 else "fresh"

    tokens = source(get_token)
    for _ in range(2):
        assert await tokens.replace(await tokens.current()) is None
    assert await tokens.replace(await tokens.current()) == "fresh"
    tokens.accepted()
    assert await tokens.replace("fresh") == "kept"
    assert attempts == [0, 1, 2, 0]


async def test_a_callback_that_fails_for_a_request_is_an_auth_error_with_its_cause() -> None:
    async def get_token(context: TokenContext) -> str:
        raise OSError("secret words")

    with pytest.raises(AuthError) as caught:
        await source(get_token).current()
    assert caught.value.code == "token_unavailable"
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


async def test_closing_fails_calls_that_wait_for_a_token_without_cancelling_them() -> None:
    asked = asyncio.Event()

    async def get_token(context: TokenContext) -> str:
        asked.set()
        return await asyncio.Future[str]()

    tokens = source(get_token)
    async with asyncio.timeout(60):
        waiting = asyncio.create_task(tokens.current())
        await asked.wait()
        await tokens.close()
        with pytest.raises(ClosedError):
            await waiting


async def test_a_callback_that_closes_its_client_does_not_wait_for_itself() -> None:
    closed = asyncio.Event()

    async def get_token(context: TokenContext) -> str:
        try:
            await ps.close()
        finally:
            closed.set()
        return "t"

    ps = PubSubClient("ws://127.0.0.1:1/ws", get_token=get_token)
    connecting = asyncio.create_task(ps.connect())
    for _ in range(50):  # turns of the loop
        await asyncio.sleep(0)
    assert closed.is_set()
    with pytest.raises(ClosedError):
        await connecting


async def test_a_callback_that_raises_a_cancellation_has_failed() -> None:
    async def get_token(context: TokenContext) -> str:
        raise asyncio.CancelledError

    async with asyncio.timeout(60):
        with pytest.raises(AuthError, match="RuntimeError"):
            await source(get_token).current()


def test_the_end_of_a_token_is_unix_seconds_or_a_datetime() -> None:
    at = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
    assert Token("t", at.timestamp()).expires_ms == Token("t", at).expires_ms == 1_795_435_200_000
    assert Token("t").expires_ms is None


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (1_795_435_200_000, "is in milliseconds"),
        (datetime(2026, 11, 23, 12, 0), "without a time zone"),
        ("soon", "is str"),
        (True, "is bool"),
        (-1, "is not a time"),
        (float("nan"), "is not a time"),
    ],
)
def test_another_end_of_a_token_is_refused(end: Any, expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected) as caught:
        Token("t", end)
    assert caught.value.field == "expires_at"
