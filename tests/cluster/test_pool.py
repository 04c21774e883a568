"""The connections for reading: one call each, and none that outlives its caller or the end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError

from pubsub_server.backplanes.redis import pool, wire
from pubsub_server.backplanes.redis.servers import READERS, Server
from pubsub_server.testing import running_server
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.cluster.store import Store

BOUND = 60


class Slow:
    """A server that greets and answers when the test allows it."""

    def __init__(self) -> None:
        self.greets = asyncio.Event()
        self.answers = asyncio.Event()
        self.open = 0
        self.dialed = 0
        self.replica = False
        self.calls: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.dialed += 1
        with suppress(OSError):
            while data := await reader.read(65_536):
                if b"HELLO" in data:
                    await self.greets.wait()
                    writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n")
                elif count := data.count(b"CLIENT"):
                    writer.write(b"+OK\r\n" * count)
                else:
                    self.calls.append(data.split(b"\r\n")[-2])
                    replica = self.replica
                    await self.answers.wait()
                    writer.write(b"-READONLY replica\r\n" if replica else b"$1\r\n7\r\n")
        self.open -= 1
        writer.close()


@pytest.fixture
async def slow() -> AsyncGenerator[tuple[Slow, Server]]:
    fake = Slow()
    fake.greets.set()
    listener = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    server = Server(
        {"host": "127.0.0.1", "port": listener.sockets[0].getsockname()[1]}, shared=True
    )
    yield fake, server
    server.close()
    fake.greets.set()
    fake.answers.set()
    async with asyncio.timeout(BOUND):
        await until(lambda: fake.open, 0)
    listener.close()


def get(server: Server, key: object) -> asyncio.Task[Any]:
    return asyncio.create_task(server.readers.execute_command("GET", str(key)))


async def test_calls_that_find_no_free_connection_get_one_in_their_order(
    slow: tuple[Slow, Server],
) -> None:
    fake, server = slow
    async with asyncio.timeout(BOUND):
        calls = [get(server, number) for number in range(READERS * 3)]
        await until(lambda: len(fake.calls), READERS)
        fake.answers.set()
        assert await asyncio.gather(*calls) == [b"7"] * READERS * 3
    assert fake.dialed == READERS
    assert sorted(fake.calls[:READERS], key=int) == [b"%d" % n for n in range(READERS)]
    assert set(fake.calls[READERS : 2 * READERS]) <= {
        b"%d" % n for n in range(READERS, 3 * READERS)
    }


async def test_a_cancelled_call_ends_at_once_in_whichever_turn_of_the_loop(
    slow: tuple[Slow, Server],
) -> None:
    fake, server = slow
    async with asyncio.timeout(BOUND):
        for turns in range(40):
            fake.answers.clear()
            call = get(server, "x")
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            assert call.cancelled()
            fake.answers.set()
            assert await get(server, "y") == b"7"


async def test_a_connection_that_is_free_for_a_cancelled_call_goes_to_the_next_one(
    slow: tuple[Slow, Server],
) -> None:
    fake, server = slow
    async with asyncio.timeout(BOUND):
        first = [get(server, number) for number in range(READERS)]
        await until(lambda: len(fake.calls), READERS)
        gone, follows = get(server, "gone"), get(server, "next")
        await asyncio.sleep(0)
        # Its connection is free in the same turn of the loop in which the call is cancelled.
        first[0].add_done_callback(lambda _: gone.cancel())
        first[0].cancel()
        with suppress(asyncio.CancelledError):
            await gone
        fake.answers.set()
        assert await follows == b"7"
        await asyncio.gather(*first[1:])


async def test_a_call_that_waits_does_not_get_a_connection_to_a_server_that_became_a_replica(
    slow: tuple[Slow, Server],
) -> None:
    fake, server = slow
    async with asyncio.timeout(BOUND):
        fake.replica = True
        first = [get(server, number) for number in range(READERS)]
        await until(lambda: len(fake.calls), READERS)
        follows = get(server, "next")
        await asyncio.sleep(0)
        # Connections that are dialed from now on lead to the new primary.
        fake.replica = False
        fake.answers.set()
        for call in first:
            with pytest.raises(ReadOnlyError):
                await call
        assert await follows == b"7"
    assert fake.dialed == READERS + 1


async def test_a_call_that_finds_no_free_connection_in_time_says_so(
    slow: tuple[Slow, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, server = slow
    async with asyncio.timeout(BOUND):
        calls = [get(server, number) for number in range(READERS)]
        await until(lambda: len(fake.calls), READERS)
        monkeypatch.setattr(pool, "ANSWER_WITHIN", 0.01)
        with pytest.raises(RedisConnectionError, match=r"no connection became free within 0\.01 s"):
            await get(server, "late")
        fake.answers.set()
        assert await asyncio.gather(*calls) == [b"7"] * READERS


@pytest.mark.parametrize("dialing", [True, False])
async def test_no_connection_is_open_after_the_end_whatever_its_calls_wait_for(
    slow: tuple[Slow, Server], dialing: bool
) -> None:
    fake, server = slow
    async with asyncio.timeout(BOUND):
        if dialing:
            fake.greets.clear()
        calls = [get(server, number) for number in range(READERS + 2)]
        await until(lambda: fake.dialed if dialing else len(fake.calls), READERS)
        server.close()
        fake.greets.set()
        fake.answers.set()
        calls.append(get(server, "later"))
        for call in calls:
            with pytest.raises(RedisConnectionError, match=r"not used any more|is lost"):
                await call
        await until(lambda: fake.open, 0)
    assert fake.dialed == READERS


async def test_a_node_writes_its_heartbeat_while_calls_occupy_all_connections_for_reading(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pool, wire):
        monkeypatch.setattr(module, "ANSWER_WITHIN", BOUND)
    key = "hanzo-pubsub:{0}:awaited"
    async with asyncio.timeout(BOUND):
        async with running_server(redis_url=store.url, node_heartbeat=50) as node:
            backplane: Any = node.hub.core.backplane
            link, lease = backplane._link, backplane._lease

            async def beats() -> None:
                before = lease.last_heartbeat
                await until(lambda: lease.last_heartbeat > before)

            async def all_block() -> bool:
                return b"blocked_clients:%d\r" % READERS in await store.command("INFO", "clients")

            # The first heartbeat also reads.
            await beats()
            await beats()
            calls = [asyncio.create_task(link._ask(key, "BLPOP", key, 0)) for _ in range(READERS)]
            await until(all_block)
            await beats()
            assert not any(call.done() for call in calls)
            await store.command("RPUSH", key, *range(READERS))
            await asyncio.gather(*calls)
