"""One connection to Redis: ordered answers, separate pushes, and errors when it ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, ResponseError

from pubsub_server.backplanes.redis import wire as module
from pubsub_server.backplanes.redis.servers import READERS, One
from pubsub_server.backplanes.redis.wire import ANSWER_WITHIN, Wire
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from tests.cluster.store import Store

BOUND = 60


class Fake:
    """A server that sends the answers of the test."""

    def __init__(self) -> None:
        self.answers = b""
        self.writer: asyncio.StreamWriter | None = None
        self.commands = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        while data := await reader.read(65_536):
            if b"HELLO" in data:
                writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n")
                data = data[data.index(b"HELLO") :]
            count = data.count(b"CLIENT")
            writer.write(b"+OK\r\n" * count)
            if not count and b"HELLO" not in data:
                self.commands += data.count(b"*")
                writer.write(self.answers)
                self.answers = b""
        writer.close()


@pytest.fixture
async def fake() -> AsyncGenerator[tuple[Fake, Redis]]:
    fake = Fake()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool: Any = BlockingConnectionPool
    client: Any = Redis.from_pool(pool(host="127.0.0.1", port=port, protocol=3))
    yield fake, client
    await client.aclose()
    server.close()


async def test_answers_are_given_in_order_and_pushes_apart_from_them(
    fake: tuple[Fake, Redis],
) -> None:
    server, client = fake
    pushed: list[list[Any]] = []

    def note(push: Sequence[Any]) -> None:
        pushed.append(list(push))

    wire = Wire(client, note)
    async with asyncio.timeout(BOUND):
        await wire.open()
        server.answers = b":1\r\n>3\r\n+smessage\r\n+c\r\n+x\r\n-ERR no\r\n:3\r\n"
        answers: list[Any] = []
        for number in range(3):
            wire.send(("GET", str(number)), answers.append)
        await until(lambda: len(answers), 3)
        assert (answers[0], answers[2], len(pushed)) == (1, 3, 1)
        assert isinstance(answers[1], ResponseError)
        assert pushed == [[b"smessage", b"c", b"x"]]
    wire.close()


async def test_waiting_calls_fail_when_the_connection_is_lost_and_the_next_call_reconnects(
    fake: tuple[Fake, Redis],
) -> None:
    server, client = fake
    wire = Wire(client)
    async with asyncio.timeout(BOUND):
        await wire.open()
        first, ended = (
            asyncio.ensure_future(wire.execute_command("GET", "1")),
            asyncio.ensure_future(wire.ended()),
        )
        await until(lambda: server.commands, 1)
        assert server.writer is not None
        server.writer.close()
        for each in (first, ended):
            with pytest.raises(RedisConnectionError):
                await each
        assert not wire.is_open
        server.answers = b":7\r\n"
        assert await wire.execute_command("GET", "1") == 7
    wire.close()


async def test_a_server_that_does_not_answer_in_time_counts_as_lost(
    fake: tuple[Fake, Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = fake
    wire = Wire(client)
    async with asyncio.timeout(BOUND):
        await wire.open()
        monkeypatch.setattr(module, "ANSWER_WITHIN", 0.05)
        with pytest.raises(RedisConnectionError, match="no answer within"):
            await wire.execute_command("GET", "1")
    assert server.commands == 1
    assert not wire.is_open


async def test_an_answer_behind_many_messages_is_waited_for_as_long_as_they_come(
    fake: tuple[Fake, Redis],
) -> None:
    server, client = fake
    pushed: list[Any] = []
    answers: list[Any] = []
    wire = Wire(client, pushed.append)
    async with asyncio.timeout(BOUND):
        await wire.open()
        loop, late = wire._loop, 0.0
        clock: Any = SimpleNamespace(
            time=lambda: loop.time() + late, call_later=loop.call_later, call_at=loop.call_at
        )
        wire._loop = clock
        wire.send(("GET", "1"), answers.append)
        await until(lambda: server.commands, 1)
        late = ANSWER_WITHIN
        assert server.writer is not None
        server.writer.write(b">3\r\n+smessage\r\n+c\r\n+x\r\n")
        await until(lambda: len(pushed), 1)
        wire._check_oldest()
        assert wire.is_open
        late *= 2
        wire._check_oldest()
        assert [type(each) for each in answers] == [RedisConnectionError]


async def test_a_subscription_that_is_refused_is_no_answer_to_the_call_behind_it(
    fake: tuple[Fake, Redis],
) -> None:
    server, client = fake
    pushed: list[list[Any]] = []
    wire = Wire(client, lambda push: pushed.append(list(push)))
    async with asyncio.timeout(BOUND):
        await wire.open()
        answers: list[Any] = []
        wire.change_channels(("SSUBSCRIBE", "a", "b"))
        wire.send(("GET", "1"), answers.append)
        server.answers = b">3\r\n+ssubscribe\r\n+a\r\n:1\r\n>3\r\n+ssubscribe\r\n+b\r\n:2\r\n:7\r\n"
        wire.change_channels(("SSUBSCRIBE", "c"))
        await until(lambda: answers, [7])
        wire.send(("GET", "2"), answers.append)
        server.answers = b"-NOPERM no\r\n:8\r\n"
        wire.send(("GET", "3"), answers.append)
        with pytest.raises(ResponseError, match="no"):
            await wire.ended()
    assert [each[1] for each in pushed] == [b"a", b"b"]
    assert [type(each) for each in answers[1:]] == [RedisConnectionError] * 2


async def test_a_push_that_cannot_be_handled_ends_the_connection_with_its_error(
    fake: tuple[Fake, Redis],
) -> None:
    server, client = fake

    def fail(push: Sequence[Any]) -> None:
        raise KeyError("type")

    wire = Wire(client, fail)
    async with asyncio.timeout(BOUND):
        await wire.open()
        server.answers = b">3\r\n+smessage\r\n+c\r\n+x\r\n"
        wire.change_channels(("SSUBSCRIBE", "c"))
        with pytest.raises(KeyError):
            await wire.ended()


async def test_a_transport_that_takes_no_write_is_a_connection_that_is_lost(
    fake: tuple[Fake, Redis],
) -> None:
    # uvloop raises RuntimeError for a write to a transport with a closed handler.
    _, client = fake
    wire = Wire(client)
    await wire.open()

    class Closed:
        def write(self, data: bytes) -> None:
            raise RuntimeError("the handler is closed")

        def abort(self) -> None:
            pass

    broken: Any = Closed()
    real, wire._transport = wire._transport, broken
    assert real is not None
    with pytest.raises(RedisConnectionError, match="the handler is closed"):
        wire.change_channels(("PING",))
    assert not wire.is_open
    real.abort()


async def test_a_cancelled_call_closes_the_connection_unless_an_earlier_call_waits(
    fake: tuple[Fake, Redis],
) -> None:
    server, client = fake
    wire = Wire(client)
    async with asyncio.timeout(BOUND):
        await wire.open()
        first, second, third = (
            asyncio.ensure_future(wire.execute_command("GET", n)) for n in "123"
        )
        await until(lambda: server.commands, 3)
        second.cancel()
        await asyncio.wait([second])
        assert wire.is_open
        first.cancel()
        await asyncio.wait([first])
        with pytest.raises(RedisConnectionError, match="the connection is lost"):
            await third
        assert not wire.is_open


async def test_a_connection_that_is_ended_while_it_is_dialed_stays_closed(
    fake: tuple[Fake, Redis],
) -> None:
    server, client = fake
    wire = Wire(client)
    async with asyncio.timeout(BOUND):
        calls = [asyncio.ensure_future(wire.execute_command("GET", n)) for n in "12"]
        await asyncio.sleep(0)
        wire.hang_up()
        for call in calls:
            with pytest.raises(RedisConnectionError, match="not used any more"):
                await call
    assert not wire.is_open
    assert server.commands == 0


@pytest.mark.parametrize(
    ("error", "stays"),
    [(RedisConnectionError("No connection available."), True), (ReadOnlyError("replica"), False)],
)
async def test_a_reader_that_fails_ends_the_connection_that_listens_only_on_a_replica(
    fake: tuple[Fake, Redis], error: Exception, stays: bool
) -> None:
    _, client = fake
    one = One(f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}")
    async with asyncio.timeout(BOUND):
        server = await one.of("any")
        await server.writer.open()
        await one.failed(server, error)
        assert server.writer.is_open is stays
        await one.close()


@pytest.mark.parametrize("turns", range(4))
async def test_a_reader_that_fails_ends_no_call_that_begins_meanwhile(
    store: Store, turns: int
) -> None:
    one = One(store.url)
    server = await one.of("any")

    async def call_all() -> object:
        return await asyncio.gather(
            *(server.readers.execute_command("PING") for _ in range(READERS))
        )

    async with asyncio.timeout(BOUND):
        await call_all()
        failing = asyncio.create_task(one.failed(server, RedisConnectionError("lost")))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert await call_all() == [b"PONG"] * READERS
        await failing
        await one.close()
