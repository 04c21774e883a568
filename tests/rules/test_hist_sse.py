"""HIST-1 and SSE-1: the transition from history to live, and the cursor of an event stream."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub import Gap, Message, PubSubClient, RetryOptions, TokenContext
from hanzoai.pubsub.testing import MemoryServer, ThreadedServer

from .help import TOPIC, clock_of, connected, numbers, read, say, soon, waiting

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hanzoai.pubsub.testing import VirtualClock

QUICK = RetryOptions(base=0.02, cap=0.1)


# ---------------------------------------------------------------- HIST-1


@pytest.mark.parametrize("step", range(24))
async def test_hist_1_a_message_published_at_any_step_of_subscribing_comes_once(step: int) -> None:
    async with MemoryServer() as server:
        clock = clock_of(server)
        for number in range(5):
            await server.publish(TOPIC, say(number))
        ps = server.client()
        sub = ps.subscribe(TOPIC, history=100)
        for _ in range(step):
            await asyncio.sleep(0)
        await server.publish(TOPIC, say(5))
        await clock.settle()
        await server.publish(TOPIC, say(6))
        await soon(sub)
        assert numbers(await read(sub, 7)) == list(range(7))
        await clock.settle()
        assert not waiting(sub)
        await ps.close()


@pytest.mark.parametrize("step", range(24))
async def test_hist_1_the_seam_holds_across_a_reconnect_at_any_step(step: int) -> None:
    async with MemoryServer() as server:
        clock = clock_of(server)
        ps = server.client()
        sub = await soon(ps.subscribe(TOPIC, since=0))
        await server.publish(TOPIC, say(0))
        server.cut()
        await clock.settle()
        await server.publish(TOPIC, say(1))
        advancing = asyncio.create_task(connected(server, ps))
        for _ in range(step):
            await asyncio.sleep(0)
        await server.publish(TOPIC, say(2))
        if step % 3 == 0:
            server.cut()
        await soon(advancing)
        await clock.settle()
        await connected(server, ps)
        await server.publish(TOPIC, say(3))
        assert numbers(await read(sub, 4)) == [0, 1, 2, 3]
        assert not waiting(sub)
        await ps.close()


async def test_hist_1_the_history_iterator_and_a_subscription_after_it_make_one_sequence(
    server: MemoryServer, clock: VirtualClock
) -> None:
    for number in range(60):
        await server.publish(TOPIC, say(number))
    ps = server.client(history_page=7)
    seen: list[Message] = []
    async for message in ps.history(TOPIC):
        seen.append(message)
        if len(seen) % 20 == 0:
            await server.publish(TOPIC, say(60 + len(seen) // 20))
    last = seen[-1].seq
    assert last is not None
    sub = await soon(ps.subscribe(TOPIC, after={TOPIC: last}))
    await server.publish(TOPIC, say(100))
    await clock.settle()
    seen += waiting(sub)
    assert numbers(seen) == [*range(60), 61, 62, 63, 100]
    await ps.close()


async def test_hist_1_history_reads_on_from_a_position_while_pages_come(
    server: MemoryServer, clock: VirtualClock
) -> None:
    first = await server.publish(TOPIC, say(0))
    for number in range(1, 30):
        await server.publish(TOPIC, say(number))
    ps = server.client(history_page=4)
    seen = [message async for message in ps.history(TOPIC, after=first.seq)]
    assert numbers(seen) == list(range(1, 30))
    newest = [message async for message in ps.history(TOPIC, limit=10)]
    assert numbers(newest) == list(range(20, 30))
    older = [message async for message in ps.history(TOPIC, before=newest[0].id, limit=6)]
    assert numbers(older) == list(range(14, 20))
    await ps.close()


# ---------------------------------------------------------------- SSE-1


@asynccontextmanager
async def gate(
    target: str, shut: asyncio.Event | None = None
) -> AsyncGenerator[tuple[str, list[asyncio.StreamWriter]]]:
    """Forwards bytes unless it is shut; the test can cut its connections."""
    host, _, rest = target.partition("://")[2].partition(":")
    port = int(rest.split("/")[0])
    writers: list[asyncio.StreamWriter] = []
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if shut is not None and shut.is_set():
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(host, port)
        writers.extend((writer, back))
        tasks.add(asyncio.create_task(pump(reader, back)))
        tasks.add(asyncio.create_task(pump(there, writer)))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}", writers
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def cut(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()
    writers.clear()


@pytest.mark.pubsub_server(sse_keepalive=20)
async def test_sse_1_the_cursor_outlives_cuts_comments_and_presence_events(
    pubsub_server: ThreadedServer,
) -> None:
    token = pubsub_server.admin_token()
    async with (
        asyncio.timeout(60),
        gate(pubsub_server.http) as (through, writers),
        PubSubClient(
            pubsub_server.ws,
            token,
            rest_url=f"http://{through}",
            transport="sse",
            retry=QUICK,
        ) as ps,
        PubSubClient(token=token, **pubsub_server.options) as publisher,
        ps.subscribe("demo.**", presence=True) as sub,
    ):
        changes = ps.states()
        events = sub.events()
        seen: list[Message | Gap] = []
        for number in range(30):
            if number % 6 == 3:
                cut(writers)
            if number % 6 == 5:
                joining = await publisher.subscribe("demo.x")
                await asyncio.sleep(0.05)  # comments and presence events arrive meanwhile
                await joining.unsubscribe()
            await publisher.publish("demo.x" if number % 2 else "demo.y", say(number))
        while len(seen) < 30:
            entry = await anext(events)
            if isinstance(entry, Message | Gap):
                seen.append(entry)
        assert not [entry for entry in seen if isinstance(entry, Gap)]
        messages = [entry for entry in seen if isinstance(entry, Message)]
        assert sorted(numbers(messages)) == list(range(30))
        for topic in ("demo.x", "demo.y"):
            mine = numbers([message for message in messages if message.topic == topic])
            assert mine == sorted(mine)
        await ps.close()
        assert len([change async for change in changes if change.to == "reconnecting"]) >= 4


@pytest.mark.pubsub_server(expiring_notice=300, jwt_leeway=0)
async def test_sse_1_the_cursor_outlives_a_token_that_ends_and_is_renewed(
    pubsub_server: ThreadedServer,
) -> None:
    asked: list[str] = []

    async def get_token(context: TokenContext) -> str:
        asked.append(context.reason)
        return pubsub_server.token(kind="admin", ttl=2)

    async with (
        asyncio.timeout(60),
        PubSubClient(
            get_token=get_token,
            transport="sse",
            retry=QUICK,
            **pubsub_server.options,
        ) as ps,
        PubSubClient(token=pubsub_server.admin_token(), **pubsub_server.options) as publisher,
        ps.subscribe("demo.x") as sub,
    ):
        seen: list[Message] = []
        number = 0
        while len(asked) < 4:
            await publisher.publish("demo.x", say(number))
            seen.append(await anext(sub))
            number += 1
            await asyncio.sleep(0.02)  # within the publish rate, until tokens have expired
        for _ in range(5):
            await publisher.publish("demo.x", say(number))
            seen.append(await anext(sub))
            number += 1
        assert numbers(seen) == list(range(number))
        assert sub.stats.gaps == 0


async def test_sse_1_the_cursor_outlives_a_change_of_transport_and_back(
    pubsub_server: ThreadedServer,
) -> None:
    token = pubsub_server.admin_token()
    shut = asyncio.Event()
    async with (
        asyncio.timeout(60),
        gate(pubsub_server.ws, shut) as (through, writers),
        PubSubClient(
            f"ws://{through}/ws",
            token,
            rest_url=pubsub_server.http,
            retry=QUICK,
            short_life=1,
            upgrade_after=0.3,
        ) as ps,
        PubSubClient(token=token, **pubsub_server.options) as publisher,
        ps.subscribe("demo.x") as sub,
    ):
        seen: list[Message] = []
        number = 0
        for way in ("sse", "websocket", "sse"):
            if way == "sse":
                shut.set()
                cut(writers)
            else:
                shut.clear()
            while ps.transport != way:
                await publisher.publish("demo.x", say(number))
                number += 1
                seen.append(await anext(sub))
        while len(seen) < number:
            seen.append(await anext(sub))
        assert numbers(seen) == list(range(number))
        assert sub.stats.gaps == 0
