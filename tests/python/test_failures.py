"""Errors and log lines about an unreachable server, and about rejections."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import (
    AuthError,
    ConnectionFailed,
    InvalidOption,
    Message,
    OperationTimeout,
    PermissionDenied,
    PubSub,
    PubSubClient,
    PubSubError,
    RetryOptions,
    StateChange,
    Token,
    TokenContext,
    UsageError,
)
from hanzoai.pubsub.generated.errors import CODES
from hanzoai.pubsub.runtime.failures import reason_of
from hanzoai.pubsub.runtime.handlers import Listeners
from hanzoai.pubsub.session.ports import Rejected
from hanzoai.pubsub.testing import MemoryServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

FALLBACK = (
    "using server-sent events instead. Check the port and path of `url`, and that proxies pass "
    "WebSocket upgrades."
)


def warnings_of(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[MemoryServer]:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        'rules:\n  - pattern: "open.**"\n    require: {authenticated: true}\n', "utf-8"
    )
    async with MemoryServer(rules=str(rules)) as server:
        yield server


# ---------------------------------------------------------------- refusals


async def test_a_rejected_subscription_with_a_handler_is_reported_to_on_error(
    guarded: MemoryServer,
) -> None:
    errors: list[Exception] = []
    ps = guarded.client(guarded.token("alice"), on_error=errors.append)
    sub = ps.subscribe("secret.a", on_message=print)
    await guarded.clock.settle()
    (error,) = errors
    assert isinstance(error, PermissionDenied)
    assert (error.topic, sub.active) == ("secret.a", False)


async def test_a_refused_subscription_with_a_handler_is_logged_without_on_error(
    guarded: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = guarded.client(guarded.token("alice"))
    ps.subscribe("secret.a", on_presence=print)
    await guarded.clock.settle()
    (line,) = warnings_of(caplog, logging.ERROR)
    assert "forbidden" in line
    assert "secret.a" in line


async def test_a_permanent_failure_is_reported_once_for_all_handlers(
    guarded: MemoryServer,
) -> None:
    errors: list[Exception] = []
    ps = guarded.client("garbage", on_error=errors.append)
    subs = [ps.subscribe(f"open.{n}", on_message=print) for n in range(3)]
    await guarded.clock.settle()
    (error,) = errors
    assert isinstance(error, AuthError)
    assert not any(sub.active for sub in subs)


async def test_an_error_is_raised_instead_of_reported_if_a_call_awaits_it(
    guarded: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = []
    ps = guarded.client(guarded.token("alice"), on_error=errors.append)
    with pytest.raises(PermissionDenied):
        await ps.subscribe("secret.a", on_message=print)
    with pytest.raises(PermissionDenied):
        async with ps.subscribe("secret.b", on_message=print):
            pass
    with pytest.raises(PermissionDenied):
        async for _ in ps.subscribe("secret.c", on_presence=print):
            pass
    with pytest.raises(PermissionDenied):
        await anext(ps.subscribe("secret.d"))
    await guarded.clock.settle()
    assert (errors, warnings_of(caplog)) == ([], [])


async def test_a_rejection_after_a_wait_has_timed_out_is_reported(guarded: MemoryServer) -> None:
    errors: list[Exception] = []
    ps = guarded.client(guarded.token("alice"), on_error=errors.append, operation_timeout=1)
    await ps.connect()
    with guarded.frozen():
        sub = ps.subscribe("secret.a", on_message=print)
        task = asyncio.ensure_future(sub)
        await guarded.clock.advance(2)
        with pytest.raises(OperationTimeout):
            await task
    await guarded.clock.settle()
    assert [type(error) for error in errors] == [PermissionDenied]


async def test_messages_that_go_to_a_handler_cannot_be_taken_by_hand(
    pubsub_memory: MemoryServer,
) -> None:
    got: list[Message] = []
    sub = await pubsub_memory.client().subscribe("a.b", on_message=got.append)
    with pytest.raises(UsageError, match="on_message"):
        await anext(sub)
    with pytest.raises(UsageError, match="on_message"):
        sub.take_nowait()


# ---------------------------------------------------------------- no connection


async def test_an_outage_is_one_warning_with_its_reason(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    for _ in range(2):
        with pubsub_memory.refusing(None, "The cable is cut."):
            ps.subscribe("a.b", on_message=print)
            await pubsub_memory.clock.advance(60)
            assert ps.transport is None
        await pubsub_memory.clock.advance_until(lambda: ps.state == "connected")
        await pubsub_memory.clock.advance(11)  # stable
    first, second = warnings_of(caplog)
    assert first == second
    assert first.startswith(f"No connection to {ps.url}: The cable is cut.")


async def test_without_a_server_a_client_logs_after_its_first_attempt_how_to_start_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed = asyncio.Event()

    def on_state(change: StateChange) -> None:
        if change.to == "reconnecting":
            failed.set()

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{held.getsockname()[1]}"
        retry = RetryOptions(base=3_600, cap=3_600)
        ps = PubSubClient(f"ws://{address}/ws", token="x", retry=retry, on_state=on_state)
        async with ps:
            connecting = asyncio.create_task(ps.connect())
            await failed.wait()
            connecting.cancel()
            with pytest.raises(ConnectionFailed) as raised:
                await ps.connect(timeout=0.01)
    remedy = "Start the server, in development with `hanzo-pubsub serve --dev`, or"
    assert raised.value.remedy.startswith(remedy)
    (warning,) = warnings_of(caplog)
    refused = f"{address} refused the connection: no program uses this port."
    assert warning.startswith(f"No connection to {ps.url}: {refused} {remedy}")


async def test_without_a_server_a_call_over_http_says_how_to_start_one() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        rest_url = f"http://127.0.0.1:{held.getsockname()[1]}"
        retry = RetryOptions(base=0.001, cap=0.001)
        async with PubSubClient("ws://127.0.0.1:1/ws", "x", rest_url=rest_url, retry=retry) as ps:
            with pytest.raises(ConnectionFailed) as raised:
                await anext(ps.history("demo.a"))
    assert raised.value.message.endswith("refused the connection: no program uses this port.")
    assert raised.value.remedy == (
        "Start the server, in development with `hanzo-pubsub serve --dev`, or correct the address."
    )


async def test_connections_that_are_lost_again_and_again_are_one_warning_for_each_reason(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    for reason in ("The cable is cut.", "The cable is loose.") * 10:
        pubsub_memory.cut(None, reason)
        await pubsub_memory.clock.advance_until(lambda: ps.state == "connected")
    logged = warnings_of(caplog)
    remedy = CODES["connection_failed"].remedy
    assert logged == [
        f"No connection to {ps.url}: The cable is cut. {remedy} The client keeps trying.",
        f"No connection to {ps.url}: The cable is loose. {remedy} The client keeps trying.",
        f"The WebSocket {ps.url} failed (The cable is cut); {FALLBACK}",
    ]
    await pubsub_memory.clock.advance(11)  # stable
    pubsub_memory.cut(None, "The cable is cut.")
    await pubsub_memory.clock.advance_until(lambda: ps.state == "connected")
    assert warnings_of(caplog) == [*logged, logged[0]]


async def test_a_fallback_after_a_stable_connection_is_a_warning_again(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    clock = pubsub_memory.clock
    await ps.connect()
    for _ in range(2):
        while ps.transport == "websocket":
            pubsub_memory.cut(None, "The cable is cut.")
            await clock.advance_until(lambda: ps.state == "connected")
        await clock.advance_until(lambda: ps.transport == "websocket", 60)
    fallbacks = [text for text in warnings_of(caplog) if "server-sent events" in text]
    assert len(fallbacks) == 2


async def test_a_restart_that_the_server_announces_is_no_warning_if_the_client_reconnects(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    problem = Rejected(code="going_away", message="The node is drained.")
    ps._ready().driver.failures.note_problem(problem)
    pubsub_memory.cut(1001, "going away")
    await pubsub_memory.clock.advance_until(lambda: ps.state == "connected", 60)
    assert warnings_of(caplog) == []
    pubsub_memory.cut(1001, "going away")
    await pubsub_memory.clock.advance_until(lambda: ps.state == "connected", 60)
    assert len(warnings_of(caplog)) == 1


async def test_an_announced_restart_is_one_warning_if_the_client_cannot_reconnect(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    await ps.connect()
    problem = Rejected(code="going_away", message="The node is drained.")
    ps._ready().driver.failures.note_problem(problem)
    with pubsub_memory.refusing(None, "The cable is cut."):
        pubsub_memory.cut(1001, "going away")
        await pubsub_memory.clock.advance(120)
    (warning,) = warnings_of(caplog)
    assert warning.startswith(f"No connection to {ps.url}: The cable is cut.")


async def test_a_publish_that_was_not_sent_in_time_says_what_failed(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client()
    with pubsub_memory.refusing(None, "The cable is cut."):
        task = asyncio.create_task(ps.publish("a.b", {"data": 1}, timeout=3))
        await pubsub_memory.clock.advance(3)
        with pytest.raises(OperationTimeout) as caught:
            await task
    assert not caught.value.outcome_unknown
    assert caught.value.message.startswith("The message could not be sent within ")
    assert caught.value.message.endswith(" Last failure: The cable is cut.")
    assert caught.value.remedy == CODES["connection_failed"].remedy


async def test_a_publish_without_an_accepted_token_has_the_remedy_of_the_token(
    pubsub_memory: MemoryServer,
) -> None:
    def forged(reason: str) -> str:
        return "forged"

    ps = pubsub_memory.client(get_token=forged)
    task = asyncio.create_task(ps.publish("a.b", {"data": 1}, timeout=3))
    await pubsub_memory.clock.advance(3)
    with pytest.raises(OperationTimeout) as caught:
        await task
    assert "token_invalid" in caught.value.message
    assert caught.value.remedy == CODES["token_invalid"].remedy


@pytest.mark.pubsub_server(publish_rate_user=10)
async def test_the_timeout_of_a_paced_publish_names_the_pacing(pubsub_memory: MemoryServer) -> None:
    ps = pubsub_memory.client(pubsub_memory.token("alice"))
    await ps.connect()
    calls = [ps.publish("a.b", {"data": n}, timeout=2) for n in range(60)]
    gathered = asyncio.ensure_future(asyncio.gather(*calls, return_exceptions=True))
    await pubsub_memory.clock.advance_until(gathered.done)
    late = [error for error in await gathered if isinstance(error, OperationTimeout)]
    assert late
    assert "State: connected. The client limits publishes to 10 per second" in late[0].message


# ---------------------------------------------------------------- the way


def way_of(ps: PubSubClient) -> str | None:
    return ps.transport


async def test_an_unintended_transport_is_logged_once_and_can_be_queried(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client()
    assert way_of(ps) is None
    with pubsub_memory.refusing(None, "HTTP 404 from the proxy.", transport="websocket"):
        ps.subscribe("a.b", on_message=print)
        await pubsub_memory.clock.advance_until(lambda: ps.state == "connected")
        assert way_of(ps) == "sse"
        pubsub_memory.cut()
        await pubsub_memory.clock.advance_until(lambda: ps.transport is None)
        await pubsub_memory.clock.advance_until(lambda: ps.state == "connected")
    fallbacks = [line for line in warnings_of(caplog) if "server-sent events" in line]
    assert fallbacks == [f"The WebSocket {ps.url} failed (HTTP 404 from the proxy); {FALLBACK}"]
    await pubsub_memory.clock.advance_until(lambda: ps.transport == "websocket")


async def test_a_callback_that_returns_no_token_has_the_remedy_of_its_error(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    def in_milliseconds(_: TokenContext) -> Token:
        return Token("x", 1_795_435_200_000)

    ps = pubsub_memory.client(get_token=in_milliseconds)
    call = asyncio.ensure_future(ps.publish("a.b", {"data": 1}, timeout=2))
    await pubsub_memory.clock.advance_until(call.done)
    remedy = "Pass seconds: divide it by 1000."
    with pytest.raises(OperationTimeout) as caught:
        await call
    assert caught.value.remedy == remedy
    assert [line for line in warnings_of(caplog) if remedy in line]


async def test_a_callback_that_does_not_return_is_named_in_the_remedy(
    pubsub_memory: MemoryServer,
) -> None:
    async def never(_: TokenContext) -> str:
        return await asyncio.Future[str]()

    ps = pubsub_memory.client(get_token=never, fetch_timeout=1)
    call = asyncio.ensure_future(ps.publish("a.b", {"data": 1}, timeout=2))
    await pubsub_memory.clock.advance_until(call.done)
    with pytest.raises(OperationTimeout) as caught:
        await call
    assert caught.value.remedy.startswith("Let `get_token` return within `fetch_timeout`")


async def test_requested_server_sent_events_cause_no_warning(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    ps = pubsub_memory.client(transport="sse")
    await ps.connect()
    assert (way_of(ps), warnings_of(caplog)) == ("sse", [])
    await ps.close()
    assert way_of(ps) is None


def test_the_blocking_client_reports_its_transport(caplog: pytest.LogCaptureFixture) -> None:
    with PubSub("ws://127.0.0.1:1/ws", "t") as ps:
        assert ps.transport is None


# ---------------------------------------------------------------- get_token


def takes_nothing() -> str:
    return "x"


def takes_two(_: object, __: object) -> str:
    return "x"


def takes_one_or_two(_: object, __: object = None) -> str:
    return "x"


def takes_any(*_: object) -> str:
    return "x"


@pytest.mark.parametrize("name", ["get_token", "on_state", "on_error"])
@pytest.mark.parametrize("wrong", ["x", takes_nothing, takes_two])
def test_a_callback_that_cannot_take_its_argument_is_refused_at_once(
    name: str, wrong: object
) -> None:
    token = None if name == "get_token" else "t"
    with pytest.raises(InvalidOption) as caught:
        PubSubClient("ws://127.0.0.1/ws", token, **{name: wrong})  # type: ignore[arg-type]
    assert caught.value.field == name


@pytest.mark.parametrize("right", [print, takes_any, takes_one_or_two, str.lower])
def test_a_callback_that_can_take_one_argument_is_taken(right: object) -> None:
    PubSubClient("ws://127.0.0.1/ws", get_token=right, on_state=right)  # type: ignore[arg-type]


async def test_a_callback_that_fails_is_named_with_its_place_and_is_the_cause(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    def get_token(context: TokenContext) -> str:
        raise LookupError("hunter2")

    async def ask(context: TokenContext) -> str:
        return get_token(context)

    ps = pubsub_memory.client(get_token=ask, operation_timeout=5)
    sub = ps.subscribe("a.b")
    calls: list[Callable[[], Awaitable[object]]] = [
        ps.connect,
        lambda: sub,
        lambda: ps.publish("a.b", {"data": 1}),
    ]
    for call in calls:
        task = asyncio.ensure_future(call())
        await pubsub_memory.clock.advance(5)
        with pytest.raises(PubSubError) as caught:
            await task
        assert isinstance(caught.value.__cause__, LookupError)
        assert "get_token raised LookupError in test_failures.py, line " in caught.value.message
        assert "get_token" in caught.value.remedy
        assert "hunter2" not in str(caught.value)
    errors = warnings_of(caplog, logging.ERROR)
    assert errors == warnings_of(caplog)
    assert "test_failures.py, line " in errors[0]
    assert "hunter2" not in " ".join(errors)


async def test_a_callback_that_fails_again_and_again_is_reported_once_per_cause(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    raised = [TypeError(), TypeError(), LookupError(), None, LookupError()]
    calls = 0

    async def get_token(context: TokenContext) -> str:
        nonlocal calls
        error = raised[min(calls, len(raised) - 1)]
        calls += 1
        if error is not None:
            raise error
        return pubsub_memory.token(ttl=60)

    ps = pubsub_memory.client(get_token=get_token)
    ps.subscribe("a.b", on_message=print)
    await pubsub_memory.clock.advance_until(lambda: ps.state == "connected")
    # The client renews the token before it expires.
    await pubsub_memory.clock.advance_until(lambda: calls > len(raised) + 1)
    errors = [line.partition(" in ")[0] for line in warnings_of(caplog, logging.ERROR)]
    assert errors == [
        f"token_unavailable: get_token raised {name}"
        for name in ("TypeError", "LookupError", "LookupError")
    ]


def starts_nothing(coroutine: object, name: str) -> asyncio.Task[None]:
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (None, "timeout: Too late."),
        ("a.b", "timeout: Too late. (topic a.b)"),
        # A part of a word is not the topic.
        ("late", "timeout: Too late."),
        ("a", "timeout: Too late. (topic a)"),
    ],
)
async def test_a_logged_error_names_its_topic_if_it_has_one(
    caplog: pytest.LogCaptureFixture, topic: str | None, words: str
) -> None:
    error = OperationTimeout("Too late.", remedy="")
    Listeners(None, None, starts_nothing).report(error, topic)
    assert [line.split("\n")[0] for line in warnings_of(caplog)] == [words]


async def test_a_logged_error_whose_text_names_the_topic_does_not_repeat_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = PermissionDenied("Not allowed.", remedy="", topic="a.b")
    Listeners(None, None, starts_nothing).report(error, "a.b")
    (line,) = warnings_of(caplog)
    assert line.count("a.b") == 1


async def test_a_logged_state_ends_with_its_code_or_its_name(
    pubsub_memory: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hanzoai.pubsub")
    ps = pubsub_memory.client()
    await ps.connect()
    pubsub_memory.cut(4500, "Enough.")
    await pubsub_memory.clock.advance_until(lambda: "4500" in caplog.text)
    lines = [line for line in warnings_of(caplog, logging.DEBUG) if " -> " in line]
    assert lines[0] == "initialized -> connecting"
    assert lines[-1].endswith(" 4500")


async def test_a_callback_that_returns_no_token_is_named(pubsub_memory: MemoryServer) -> None:
    async def get_token(context: TokenContext) -> str:
        return 7  # type: ignore[return-value]

    ps = pubsub_memory.client(get_token=get_token)
    task = asyncio.create_task(ps.connect(2))
    await pubsub_memory.clock.advance(2)
    with pytest.raises(AuthError, match="`get_token` returned int") as caught:
        await task
    assert isinstance(caught.value.__cause__, InvalidOption)


def change(reason: str = "", code: int | None = None) -> StateChange:
    return StateChange("connecting", "reconnecting", code, reason)


def test_the_reason_for_a_missing_connection_is_stated_in_words() -> None:
    assert reason_of(change("The host is gone.", 1006)) == "The host is gone."
    assert reason_of(change("Busy.", 1013)) == "Busy (1013)."
    assert reason_of(change("refused")) == "refused."
    assert reason_of(change()) == "the state is reconnecting."


async def test_a_server_that_does_not_answer_is_the_reason(
    pubsub_memory: MemoryServer,
) -> None:
    ps = pubsub_memory.client(open_timeout=60)
    with pubsub_memory.frozen():
        task = asyncio.create_task(ps.connect(2))
        await pubsub_memory.clock.advance(2)
        with pytest.raises(ConnectionFailed) as caught:
            await task
    assert caught.value.message == (
        "Not connected within 2 s: the server has not answered; the state is connecting."
    )


async def test_a_token_callback_that_does_not_return_is_the_reason(
    pubsub_memory: MemoryServer,
) -> None:
    async def get_token(context: TokenContext) -> str:
        await asyncio.Event().wait()
        return ""

    ps = pubsub_memory.client(get_token=get_token)
    task = asyncio.create_task(ps.connect(2))
    await pubsub_memory.clock.advance(2)
    with pytest.raises(ConnectionFailed) as caught:
        await task
    assert caught.value.message == "Not connected within 2 s: `get_token` has not returned."
