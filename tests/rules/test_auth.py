"""AUTH-1 … AUTH-8: tokens are renewed in time, once, and never shown."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import pytest

from hanzoai.pubsub import (
    AuthError,
    AuthRefused,
    ConnectionFailed,
    PubSub,
    PubSubClient,
    PubSubError,
    StateChange,
    Token,
    TokenContext,
    TokenExpired,
)
from hanzoai.pubsub.generated.wire import MessageFrame
from hanzoai.pubsub.testing import MemoryServer, ThreadedServer

from .help import TOPIC, clock_of, connected, numbers, read, say, soon, waiting

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hanzoai.pubsub.testing import VirtualClock


class Issuer:
    """A token callback that counts its concurrent calls."""

    def __init__(self, server: MemoryServer, ttl: float = 120, takes: float = 0) -> None:
        self.server = server
        self.ttl = ttl
        self.takes = takes
        self.contexts: list[TokenContext] = []
        self.busy = 0
        self.most = 0
        self.at: list[float] = []

    async def __call__(self, context: TokenContext) -> str:
        self.contexts.append(context)
        self.at.append(self.server.clock.now())
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            if self.takes:
                await self.server.clock.sleep(self.takes)
            return self.server.token("tests", kind="service", ttl=self.ttl)
        finally:
            self.busy -= 1


def auth_frames(server: MemoryServer) -> int:
    return len([frame for frame in server.received if frame["type"] == "auth"])


# ---------------------------------------------------------------- AUTH-1


async def test_auth_1_a_warning_makes_one_call_and_one_auth_thirty_seconds_ahead_and_no_loss(
    server: MemoryServer, clock: VirtualClock
) -> None:
    issuer = Issuer(server, ttl=120, takes=5)
    ps = server.client(get_token=issuer)
    waiting_for = asyncio.create_task(ps.connect(60))
    await connected(server, ps)
    await soon(waiting_for)
    sub = await soon(ps.subscribe(TOPIC))
    began = clock.now()
    for number in range(300):
        await server.publish(TOPIC, say(number))
        await clock.advance(1)
    assert issuer.most == 1
    assert issuer.contexts[0].reason == "connect"
    assert {context.reason for context in issuer.contexts[1:]} == {"expiring"}
    renewals = [at - began for at in issuer.at[1:]]
    assert len(renewals) >= 3
    for before, after in zip([-5.0, *renewals], renewals, strict=False):
        assert after - before <= 120 - 30 - 5
    assert auth_frames(server) == len(issuer.contexts)
    assert len(server.attempts) == 1
    assert numbers(waiting(sub)) == list(range(300))
    await ps.close()


@pytest.mark.parametrize("seed", range(20))
async def test_auth_1_in_no_schedule_are_two_calls_under_way(seed: int) -> None:
    import random

    rolls = random.Random(seed)
    async with MemoryServer(seed=seed) as server:
        clock = clock_of(server)
        issuer = Issuer(server, ttl=rolls.choice([20, 70, 200]), takes=rolls.random() * 8)
        ps = server.client(get_token=issuer)
        sub = ps.subscribe(TOPIC, on_message=lambda message: None)
        for _ in range(40):
            match rolls.randrange(4):
                case 0:
                    server.cut(rolls.choice([None, 4401, 1012]))
                case 1:
                    reading = asyncio.create_task(anext(ps.history(TOPIC), None))
                    await clock.settle()
                    reading.cancel()
                case _:
                    await clock.advance(rolls.random() * 60)
        assert issuer.most <= 1
        await sub.unsubscribe()
        await ps.close()


# ---------------------------------------------------------------- AUTH-2


async def test_auth_2_an_answer_that_comes_after_its_time_is_discarded(
    server: MemoryServer, clock: VirtualClock
) -> None:
    late: list[asyncio.Future[str]] = []
    calls = 0

    async def get_token(context: TokenContext) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            late.append(future)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                return await future  # a callback that ignores its cancellation
        return server.token("second", kind="service")

    ps = server.client(get_token=get_token, fetch_timeout=5)
    connecting = asyncio.create_task(ps.connect(60))
    await connected(server, ps)
    await soon(connecting)
    before = auth_frames(server)
    late[0].set_result(server.token("first", kind="service"))
    await clock.advance(10)
    assert auth_frames(server) == before == 1
    published = await soon(ps.publish(TOPIC, say(1)))
    history = [message async for message in ps.history(TOPIC)]
    assert history[0].id == published.id
    assert history[0].sender is not None
    assert history[0].sender.id == "second"
    await ps.close()


# ---------------------------------------------------------------- AUTH-3


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_auth_3_a_callback_that_refuses_ends_the_client(
    asynchronous: bool, server: MemoryServer
) -> None:
    def refuse(context: TokenContext) -> str:
        raise AuthRefused("logged out")

    async def refuse_later(context: TokenContext) -> str:
        raise AuthRefused("logged out")

    ps = server.client(get_token=refuse_later if asynchronous else refuse)
    with pytest.raises(AuthRefused):
        await soon(ps.connect())
    assert ps.state == "failed"
    with pytest.raises(AuthRefused):
        await ps.publish(TOPIC, say(1))


async def test_auth_3_a_callback_that_fails_is_asked_again_with_growing_waits(
    server: MemoryServer, clock: VirtualClock
) -> None:
    contexts: list[TokenContext] = []
    errors: list[Exception] = []

    async def get_token(context: TokenContext) -> str:
        contexts.append(context)
        if len(contexts) < 4:
            raise OSError("the issuer is down")
        return server.token("tests", kind="service")

    ps = server.client(get_token=get_token, on_error=errors.append)
    connecting = asyncio.create_task(ps.connect(600))
    await connected(server, ps)
    await soon(connecting)
    assert len(contexts) == 4
    assert [context.attempt for context in contexts] == [0, 1, 2, 3]
    # They have the same cause.
    (error,) = errors
    assert isinstance(error, AuthError)
    await ps.close()


# ---------------------------------------------------------------- AUTH-4


async def test_auth_4_a_fixed_token_that_has_expired_fails_after_one_try_with_a_remedy(
    server: MemoryServer, clock: VirtualClock
) -> None:
    token = server.token("alice", ttl=10)
    await clock.advance(11)
    ps = server.client(token)
    with pytest.raises(TokenExpired) as caught:
        await soon(ps.connect())
    assert ps.state == "failed"
    assert "callback that returns a new token" in caught.value.remedy
    await clock.advance(600)
    assert len(server.attempts) == 1
    sub = ps.subscribe  # every later call raises the same error
    with pytest.raises(TokenExpired):
        sub(TOPIC)


# ---------------------------------------------------------------- AUTH-5

SECRET = "s3cr3t-t0ken-of-the-test"
PAYLOAD = "payload-that-nobody-may-see"


async def test_auth_5_neither_token_nor_payload_is_in_logs_reprs_errors_or_urls(
    caplog: pytest.LogCaptureFixture, pubsub_server: ThreadedServer
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []

    async def get_token(context: TokenContext) -> Token:
        texts.append(repr(Token(SECRET)))
        raise RuntimeError(SECRET)

    async with asyncio.timeout(60):
        address = pubsub_server.options
        for ps in (
            PubSubClient(token=SECRET, **address),
            PubSubClient(token=f"Bearer {SECRET}", **address),
            PubSubClient(get_token=get_token, **address),
        ):
            texts += [repr(ps), ps.url]
            try:
                await ps.connect(1)
            except PubSubError as error:
                texts += [str(error), repr(error), error.remedy, str(vars(error))]
            try:
                await ps.presence(TOPIC, timeout=1)
            except PubSubError as error:
                texts += [str(error), repr(error), str(vars(error))]
            await ps.close(0)
        token = pubsub_server.admin_token()
        async with PubSubClient(token=token, **pubsub_server.options) as ps:
            sub = await ps.subscribe("demo.1")
            published = await ps.publish("demo.1", {"data": {"text": PAYLOAD}})
            message = await anext(sub)
            # The program requested the message itself, whose repr shows the start of its data.
            texts += [repr(published), repr(MessageFrame(message=message)), repr(sub)]
            texts += [repr(sub.stats), repr(ps)]
            with pytest.raises(PubSubError) as caught:
                await ps.publish("demo.1", {"data": {"text": PAYLOAD, "bad": {1, 2}}})
            texts += [str(caught.value), repr(caught.value)]
    with pytest.raises(PubSubError) as refused:
        PubSubClient(f"wss://host/ws?token={SECRET}", "t")
    texts += [str(refused.value), repr(refused.value)]
    texts += [record.getMessage() for record in caplog.records]
    texts += [str(record.__dict__) for record in caplog.records]
    assert len(caplog.records) >= 10
    assert not [line for line in texts if SECRET in line or PAYLOAD in line or token in line]


# ---------------------------------------------------------------- AUTH-6


async def test_auth_6_the_token_is_fetched_before_dialing_however_long_that_takes(
    server: MemoryServer, clock: VirtualClock
) -> None:
    issuer = Issuer(server, takes=6)
    ps = server.client(get_token=issuer)
    connecting = asyncio.create_task(ps.connect(60))
    await clock.advance(5.9)
    assert not server.attempts
    await clock.advance(0.2)
    await soon(connecting)
    assert len(server.attempts) == 1
    assert auth_frames(server) == 1
    await ps.close()


async def test_auth_6_a_callback_that_blocks_holds_up_nothing(
    pubsub_server: ThreadedServer,
) -> None:
    loop, moved = asyncio.get_running_loop(), threading.Event()

    def get_token(context: TokenContext) -> str:
        loop.call_soon_threadsafe(moved.set)
        assert moved.wait(30), "the event loop is blocked"
        return pubsub_server.admin_token()

    async with (
        asyncio.timeout(60),
        PubSubClient(get_token=get_token, **pubsub_server.options) as ps,
    ):
        await ps.connect()


# ---------------------------------------------------------------- AUTH-7


async def test_auth_7_a_client_recovers_after_three_token_lifetimes_offline_without_an_auth_error(
    server: MemoryServer, clock: VirtualClock
) -> None:
    issuer = Issuer(server, ttl=100)
    errors: list[Exception] = []
    changes: list[StateChange] = []
    ps = server.client(get_token=issuer, on_error=errors.append, on_state=changes.append)
    subs = [await soon(ps.subscribe(f"room.{n}")) for n in range(3)]
    await clock.settle()
    with server.refusing():
        await clock.advance(300)
        for n in range(3):
            await server.publish(f"room.{n}", say(n))
        dialed = len(server.attempts)
    await connected(server, ps)
    # The client does not connect with an expired token: it runs the callback first.
    assert len(issuer.contexts) >= 3
    assert dialed > 3
    await clock.settle()
    for n, sub in enumerate(subs):
        assert numbers(await read(sub, 1)) == [n]
    assert not errors
    assert not [change for change in changes if change.code in ("token_expired", "token_invalid")]
    await ps.close()


# ---------------------------------------------------------------- AUTH-8


@asynccontextmanager
async def recording_proxy(target: str) -> AsyncGenerator[tuple[str, list[bytes]]]:
    """Forwards bytes, and records the first line of every request."""
    host, _, port = target.partition("://")[2].partition(":")
    lines: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: bool) -> None:
        try:
            while data := await reader.read(65_536):
                if note:
                    lines.extend(line for line in data.split(b"\r\n") if b" HTTP/1.1" in line)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port.split("/")[0]))
        for pair in ((reader, back, True), (there, writer, False)):
            tasks.add(asyncio.create_task(pump(*pair)))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}", lines
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_auth_8_an_asynchronous_callback_serves_socket_sse_and_rest_and_no_url_has_a_token(
    transport: Literal["websocket", "sse"], pubsub_server: ThreadedServer
) -> None:
    tokens: list[str] = []

    async def get_token(context: TokenContext) -> Token:
        await asyncio.sleep(0)
        tokens.append(pubsub_server.admin_token())
        return Token(tokens[-1], expires_at=time.time() + 3_600)

    async with (
        asyncio.timeout(60),
        recording_proxy(pubsub_server.ws) as (ws, ws_lines),
        recording_proxy(pubsub_server.http) as (http, http_lines),
        PubSubClient(
            f"ws://{ws}/ws",
            get_token=get_token,
            rest_url=f"http://{http}",
            transport=transport,
        ) as ps,
        ps.subscribe("demo.1") as sub,
    ):
        await ps.publish("demo.1", say(1))
        assert numbers(await read(sub, 1)) == [1]
        await ps.publish("demo.1", say(2), via="rest")
        assert len([message async for message in ps.history("demo.1")]) == 2
        assert await ps.topics()
    lines = ws_lines + http_lines
    assert len(lines) >= 3
    assert tokens
    for token in tokens:
        assert not [line for line in lines if token.encode() in line]


def test_auth_8_the_blocking_client_takes_an_asynchronous_callback_too(
    pubsub_server: ThreadedServer,
) -> None:
    async def get_token(context: TokenContext) -> str:
        await asyncio.sleep(0)
        return pubsub_server.admin_token()

    with PubSub(get_token=get_token, **pubsub_server.options) as ps:
        assert ps.publish("demo.1", say(1)).seq is not None
        assert ps.publish("demo.1", say(1), via="rest").seq is not None


async def test_auth_6_a_server_that_is_away_is_no_auth_error() -> None:
    ps = PubSubClient("ws://127.0.0.1:9/ws", "token")
    with pytest.raises(ConnectionFailed, match="Not connected"):
        await ps.connect(0.05)
    await ps.close(0)
