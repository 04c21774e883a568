"""LIFE-1 … LIFE-9: the life of a connection."""

from __future__ import annotations

import asyncio
import collections
import gc
import itertools
import os
import random
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest

from hanzoai.pubsub import (
    ConnectionFailed,
    OperationTimeout,
    Published,
    PubSubClient,
    PubSubError,
    StateChange,
    UsageError,
)
from hanzoai.pubsub.generated.errors import close_action
from hanzoai.pubsub.settings.session import SessionOptions
from hanzoai.pubsub.testing import MemoryServer, ThreadedServer, VirtualClock
from tests.traces.effects import Fetch, StartTimer, StateChanged
from tests.traces.events import Connect, Dropped, TimerFired, Token
from tests.traces.recorder import LoggedSession

from .help import TOPIC, connected, numbers, read, say, soon

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from hanzoai.pubsub.clock import TimerHandle

STATES = {
    "initialized", "connecting", "authenticating", "connected", "reconnecting", "suspended",
    "closing", "closed", "failed",
}  # fmt: skip


# ---------------------------------------------------------------- LIFE-1


async def test_life_1_every_change_of_state_has_from_to_code_reason_retry_and_attempt(
    server: MemoryServer, clock: VirtualClock
) -> None:
    changes: list[StateChange] = []
    ps = server.client(on_state=changes.append)
    await soon(ps.connect())
    with server.refusing(1012, "restarting", retry_after=20):
        await clock.advance(150)
        assert ps.state == "suspended"
    await connected(server, ps)
    publish = asyncio.create_task(ps.publish(TOPIC, say(1)))
    server.lose_next("published")
    await clock.settle()
    close = asyncio.create_task(ps.close(3))
    await clock.advance(3)
    await soon(close)
    with pytest.raises(OperationTimeout):
        await soon(publish)
    await clock.settle()
    assert [change.to for change in changes[:3]] == ["connecting", "authenticating", "connected"]
    assert {change.to for change in changes} == STATES - {"initialized", "failed"}
    for before, after in itertools.pairwise(changes):
        assert after.from_ == before.to
    apart = next(change for change in changes if change.to == "reconnecting")
    assert apart.retry_in is not None
    refused = [change for change in changes if change.code == 1012]
    assert refused
    assert all(change.reason == "restarting" for change in refused)
    assert all(change.retry_in is not None and change.retry_in >= 20 for change in refused)
    assert max(change.attempt for change in refused) >= 2


async def test_life_1_a_client_that_fails_reports_the_reason(server: MemoryServer) -> None:
    ps = server.client(token="not-a-token")
    changes = ps.states()
    with pytest.raises(PubSubError):
        await soon(ps.connect())
    seen = [change async for change in changes]
    assert seen[-1].to == ps.state == "failed"
    assert seen[-1].code == "token_invalid"


# ---------------------------------------------------------------- LIFE-2


ATTEMPTS = 7
"""Milliseconds of an outage from which on its length matters."""
SAMPLES = 100_000 if os.environ.get("HANZO_PUBSUB_SOAK") else 3_000


AWAY = 70_000
"""Milliseconds for which the test observes the clients."""


def delays_of_a_client(rolls: random.Random) -> list[int]:
    """Return the milliseconds before each attempt of a client that never connects."""
    session = LoggedSession(SessionOptions(renewable=False, transport="websocket"), rolls.random)
    (fetch,) = [effect for effect in session.handle(Connect()) if isinstance(effect, Fetch)]
    session.handle(Token(fetch.id, "t"))
    found: list[int] = []
    while sum(found) < AWAY:
        effects = session.handle(Dropped(None, "lost"))
        found += [e.after for e in effects if isinstance(e, StartTimer) and e.name == "retry"]
        session.handle(TimerFired("retry", 0))
    return found


@pytest.fixture(scope="module")
def delays() -> list[list[int]]:
    rolls = random.Random(5)
    return [delays_of_a_client(rolls) for _ in range(SAMPLES)]


@pytest.mark.parametrize("attempt", range(ATTEMPTS))
def test_life_2_after_a_short_outage_delays_are_spread_evenly_up_to_two_seconds(
    delays: list[list[int]], attempt: int
) -> None:
    ceiling = min(2_000, 1_000 * 2**attempt)
    of_attempt = sorted(client[attempt] for client in delays)
    assert of_attempt[0] >= 0
    assert of_attempt[-1] < ceiling
    # A delay is an integer; it represents the millisecond that starts with it.
    distance = max(
        max((n + 1) / SAMPLES - (delay + 1) / ceiling, delay / ceiling - n / SAMPLES)
        for n, delay in enumerate(of_attempt)
    )
    assert distance * SAMPLES**0.5 < 1.63  # Kolmogorov and Smirnov, p = 0.01


def test_life_2_the_servers_retry_after_is_the_least_delay() -> None:
    session = LoggedSession(SessionOptions(renewable=False), lambda: 0.0)
    (fetch,) = [e for e in session.handle(Connect()) if isinstance(e, Fetch)]
    session.handle(Token(fetch.id, "t"))
    effects = session.handle(Dropped(1013, "busy", 7_000))
    (change,) = [effect for effect in effects if isinstance(effect, StateChanged)]
    assert change.retry_in == 7_000


def arrivals_after(away: int, delays: list[list[int]]) -> list[int]:
    """Return the milliseconds from the restart of a server until each client is connected."""
    attempts = [itertools.accumulate(client) for client in delays]
    return [next(now for now in times if now >= away) - away for times in attempts]


@pytest.mark.parametrize(("away", "within"), [(1_000, 2_000), (15_000, 2_000), (25_000, 4_000)])
def test_life_2_after_a_short_outage_all_clients_are_back_soon(
    delays: list[list[int]], away: int, within: int
) -> None:
    assert max(arrivals_after(away, delays)) <= within


@pytest.mark.parametrize(("away", "percent"), [(20_000, 10), (30_000, 5), (70_000, 1)])
def test_life_2_the_longer_the_outage_the_fewer_clients_come_back_in_any_100_ms(
    delays: list[list[int]], away: int, percent: int
) -> None:
    arrivals = arrivals_after(away, delays)
    slots = collections.Counter(arrival // 500 for arrival in arrivals)
    assert max(slots.values()) * 100 <= 5 * percent * SAMPLES
    assert sorted(arrivals)[len(arrivals) * 99 // 100] <= 30_000


# ---------------------------------------------------------------- LIFE-3


async def test_life_3_after_a_day_without_a_server_the_client_is_back_within_the_cap(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    await soon(ps.connect())
    with server.refusing():
        await clock.advance(24 * 3600)
        assert ps.state == "suspended"
    assert await connected(server, ps) <= 30


# ---------------------------------------------------------------- LIFE-4


async def test_life_4_silence_for_the_ping_interval_and_its_grace_means_reconnect(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client(ping_interval=15, pong_timeout=10)
    changes = ps.states()
    await soon(ps.connect())
    began = clock.now()
    with server.frozen():
        await clock.advance_until(lambda: ps.state == "reconnecting")
        assert 15 <= clock.now() - began <= 25
    await connected(server, ps)
    seen = [(await soon(anext(changes))).to for _ in range(4)]
    assert seen[-1] == "reconnecting"


async def test_life_4_any_byte_counts_as_a_heartbeat(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    sub = await soon(ps.subscribe(TOPIC).__aenter__())
    for number in range(60):
        server.lose_next("pong")
        await clock.advance(2)
        await server.publish(TOPIC, say(number))
    assert ps.state == "connected"
    assert server.attempts == type(server.attempts)(["websocket"])
    assert numbers(await read(sub, 60)) == list(range(60))
    await sub.unsubscribe()


# ---------------------------------------------------------------- LIFE-5


async def test_life_5_within_five_seconds_of_waking_a_reconnect_is_under_way(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    await soon(ps.connect())
    dialed = len(server.attempts)
    await clock.machine_sleeps(3600)
    assert await clock.advance_until(lambda: len(server.attempts) > dialed) <= 5


async def test_life_5_a_sleep_between_two_attempts_ends_the_wait(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    await soon(ps.connect())
    with server.refusing():
        await clock.advance(600)
    await clock.machine_sleeps(3600)
    assert await connected(server, ps) <= 5


# ---------------------------------------------------------------- LIFE-6


async def test_life_6_a_blocked_websocket_is_replaced_by_sse_and_probed_less_and_less(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    with server.refusing(transport="websocket"):
        connecting = asyncio.create_task(ps.connect(timeout=60))
        assert await connected(server, ps) <= 10
        await soon(connecting)
        assert list(server.attempts)[-1:] == ["sse"]
        for wait in (30, 60, 120, 240, 480, 600, 600):
            tried = list(server.attempts)
            await clock.advance(wait - 2)
            assert list(server.attempts) == tried
            await clock.advance(2)
            assert list(server.attempts) == [*tried, "websocket"]
            assert ps.state == "connected"
    await clock.advance(610)
    assert ps.state == "connected"
    assert server.attempts[-1] == "websocket"
    assert server.connections == 1


async def test_life_6_three_short_lived_connections_cause_the_fallback(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    await soon(ps.connect())
    for _ in range(3):
        await connected(server, ps)
        assert server.attempts[-1] == "websocket"
        await clock.advance(1)
        server.cut()
        await clock.settle()
    await connected(server, ps)
    assert server.attempts[-1] == "sse"


@asynccontextmanager
async def hostile(kind: str) -> AsyncGenerator[str]:
    """Run a port that blocks WebSockets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if kind == "reset":
                writer.transport.abort()
                return
            await reader.readuntil(b"\r\n\r\n")
            if kind == "forbidden":
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
            else:
                await reader.read()  # a black hole reads everything and answers nothing
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield f"ws://127.0.0.1:{port}/ws"
    finally:
        listener.close()


@pytest.mark.parametrize("kind", ["reset", "forbidden", "black hole"])
async def test_life_6_whatever_blocks_the_socket_messages_come_over_sse(
    kind: str, pubsub_server: ThreadedServer
) -> None:
    async with (
        hostile(kind) as url,
        asyncio.timeout(60),
        PubSubClient(
            url,
            pubsub_server.token(kind="admin"),
            rest_url=pubsub_server.http,
            fallback_after=0.5,
        ) as ps,
        ps.subscribe("demo.sse") as sub,
    ):
        published = await ps.publish("demo.sse", say(1))
        assert published.seq is not None
        assert numbers(await read(sub, 1)) == [1]


@asynccontextmanager
async def slow_line(address: str) -> AsyncGenerator[str]:
    """Run a relay to a WebSocket server with a bandwidth of 8 MB/s; yield its address."""
    port = int(address.rpartition(":")[2].partition("/")[0])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)

        async def back() -> None:
            while data := await far_reader.read(65_536):
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(len(data) / 8e6)
            writer.close()

        async def there() -> None:
            while data := await reader.read(65_536):
                far_writer.write(data)
            far_writer.close()

        await asyncio.gather(back(), there())

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as relay:
        own = next(iter(relay.sockets)).getsockname()[1]
        yield address.replace(f":{port}", f":{own}")


@pytest.mark.pubsub_server(publish_rate_service=1_000_000, send_queue_bytes=64 * 1024 * 1024)
async def test_life_6_a_burst_of_twenty_megabytes_is_no_silence(
    pubsub_server: ThreadedServer,
) -> None:
    token = pubsub_server.admin_token()
    options = pubsub_server.options
    # The pong waits behind the burst for longer than `pong_timeout`.
    async with (
        asyncio.timeout(60),
        slow_line(options["url"]) as url,
        PubSubClient(
            url, token, rest_url=options["rest_url"], ping_interval=0.25, pong_timeout=1
        ) as ps,
        PubSubClient(token=token, **options) as publisher,
        ps.subscribe("demo.big") as sub,
    ):
        changes = ps.states()
        text = "x" * 200_000
        batch = [("demo.big", {"data": {"n": n, "text": text}}) for n in range(100)]
        reading = asyncio.create_task(read(sub, 100))
        results = await publisher.publish_many(batch)
        assert all(isinstance(result, Published) for result in results)
        assert numbers(await reading) == list(range(100))
        assert ps.state == "connected"
        await ps.close()
        assert [change.to async for change in changes] == ["closed"]


# ---------------------------------------------------------------- LIFE-7


async def test_life_7_close_ends_when_a_hundred_queued_publishes_are_acknowledged(
    server: MemoryServer, clock: VirtualClock
) -> None:
    ps = server.client()
    await soon(ps.connect())
    server.cut()
    await clock.settle()
    publishes = [asyncio.create_task(ps.publish(TOPIC, say(n))) for n in range(100)]
    await clock.settle()
    close = asyncio.create_task(ps.close())
    await clock.advance(5)
    await soon(close)
    results = await soon(asyncio.gather(*publishes))
    assert all(result.seq is not None for result in results)
    assert ps.state == "closed"


async def test_life_7_close_ends_in_its_time_though_the_server_is_frozen() -> None:
    async with MemoryServer() as server:
        clock = server.clock
        assert isinstance(clock, VirtualClock)
        ps = server.client()
        await soon(ps.connect())
        with server.frozen():
            publishes = [asyncio.create_task(ps.publish(TOPIC, say(n))) for n in range(100)]
            await clock.settle()
            close = asyncio.create_task(ps.close(2))
            await clock.advance(1.9)
            assert not close.done()
            await clock.advance(0.1)
            await soon(close)
            outcomes = await soon(asyncio.gather(*publishes, return_exceptions=True))
        assert all(isinstance(outcome, OperationTimeout) for outcome in outcomes)
        assert all(getattr(outcome, "outcome_unknown", None) for outcome in outcomes)
        others = {
            task for task in asyncio.all_tasks() if task.get_name().startswith("hanzoai.pubsub")
        }
        assert not others
    assert clock.pending == 0


async def test_life_7_nothing_is_left_of_a_closed_client() -> None:
    async with MemoryServer() as server:
        clock = server.clock
        assert isinstance(clock, VirtualClock)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ps = server.client(on_state=print)
            sub = ps.subscribe(TOPIC, on_message=print)
            await soon(sub)
            await soon(ps.publish(TOPIC, say(1)))
            server.cut()
            await connected(server, ps)
            await soon(ps.close())
            await soon(ps.close())
            gc.collect()
        assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("hanzoai.pubsub")]
    assert clock.pending == 0


def test_life_7_a_client_is_built_without_a_loop_and_refuses_a_second_one() -> None:
    ps = PubSubClient("ws://127.0.0.1:9/ws", "token", operation_timeout=0.01)
    sub = ps.subscribe("a.b")
    assert ps.state == "initialized"
    with pytest.raises(UsageError, match="No asyncio event loop") as caught:
        ps.history("a.b")
    assert caught.value.code == "wrong_loop"

    async def use() -> None:
        with pytest.raises(ConnectionFailed):
            await ps.connect(timeout=0.01)

    async def use_again() -> None:
        with pytest.raises(UsageError, match="another event loop"):
            await ps.publish("a.b", say(1))

    async def end() -> None:
        await use()
        await asyncio.to_thread(lambda: asyncio.run(use_again()))
        await ps.close(0)

    asyncio.run(end())
    assert not sub.active or sub.topics == ("a.b",)


# ---------------------------------------------------------------- LIFE-8


class Throttled:
    """A clock whose timers fire only once a minute, like in a hidden page."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.now = clock.now
        self.wall_ms = clock.wall_ms
        self.sleep = clock.sleep

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        due = self._clock.now() + seconds
        late = -(-due // 60) * 60
        return self._clock.call_later(late - self._clock.now(), callback)


async def test_life_8_timers_that_fire_once_a_minute_cost_neither_connection_nor_presence(
    server: MemoryServer, clock: VirtualClock
) -> None:
    watcher = server.client(server.token("watcher"))
    seen: list[str] = []
    watching = watcher.subscribe(TOPIC, on_presence=lambda change: seen.append(change.change))
    await soon(watching)
    server.clock = cast("VirtualClock", Throttled(clock))
    hidden = server.client(server.token("hidden"))
    server.clock = clock
    sub = hidden.subscribe(TOPIC)
    await soon(sub)
    dialed = len(server.attempts)
    await clock.advance(600)
    assert hidden.state == watcher.state == "connected"
    assert len(server.attempts) == dialed
    assert "leave" not in seen
    assert "join" in seen
    await sub.unsubscribe()
    await watching.unsubscribe()


# ---------------------------------------------------------------- LIFE-9

CODES = [None, *range(1000, 1016), 3000, 3001, 3003, 3004, 3999, 4000, 4399, *range(4400, 4432),
         4499, 4500, 4501, 4999]  # fmt: skip

REPLACED = 4409


@pytest.mark.parametrize("code", CODES)
async def test_life_9_every_close_code_leads_to_its_action_and_to_a_change_of_state(
    code: int | None,
) -> None:
    reasons: list[str] = []

    async with MemoryServer() as server:
        clock = server.clock
        assert isinstance(clock, VirtualClock)

        async def get_token_of_server(context: object) -> str:
            reasons.append(getattr(context, "reason", ""))
            return server.token("tests", kind="service")

        changes: list[StateChange] = []
        ps = server.client(get_token=get_token_of_server, on_state=changes.append)
        await soon(ps.connect())
        await clock.advance(20)
        server.cut(code, "as the test says")
        await clock.settle()
        action = close_action(code)
        if code == REPLACED:
            # The first one may belong to a connection that the client has already lost.
            assert ps.state == "reconnecting"
            await connected(server, ps)
            server.cut(code, "as the test says")
            await clock.settle()
        if action == "stop":
            assert ps.state == "failed"
            with pytest.raises(PubSubError):
                await ps.publish(TOPIC, say(1))
        else:
            assert ps.state == "reconnecting"
            await connected(server, ps)
            assert reasons[1:] == (["rejected"] if action == "reauth" else [])
        assert changes[3].code == (1006 if code is None else code)
        await ps.close()


@pytest.mark.parametrize("action", ["retry", "reauth", "stop"])
def test_life_9_every_code_from_1000_to_4999_has_an_action(action: str) -> None:
    actions = {close_action(code) for code in range(1000, 5000)}
    assert action in actions
    assert actions == {"retry", "reauth", "stop"}
