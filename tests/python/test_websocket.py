from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import socket
import ssl
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import trustme
import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Close, Frame, Opcode

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.generated.wire import (
    AuthFrame,
    Message,
    MessageFrame,
    PingFrame,
    PongFrame,
    Publication,
    PublishFrame,
    SubscribedFrame,
)
from hanzoai.pubsub.http.status import remedy_of
from hanzoai.pubsub.settings.options import read_options
from hanzoai.pubsub.settings.proxies import socket_proxy, system_proxy
from hanzoai.pubsub.transports import Incoming, TransportClosed, TransportFailed, frames
from hanzoai.pubsub.transports.picows_connection import PicowsConnection
from hanzoai.pubsub.transports.websocket import WebSocketTransport
from hanzoai.pubsub.transports.websockets_connection import WebsocketsConnection
from hanzoai.pubsub.wire.codec import Malformed, Unknown
from tests.mutual_tls import rejecting
from tests.python.fake_dns import SILENT, SilentAddresses, resolve_to
from tests.python.received import Received, open_transport, receive

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
from websockets.utils import accept_key

TOKEN = "s3cr3t-token-value"
ENVIRONMENT: dict[str, str] = {}
Handler = Callable[[ServerConnection], Awaitable[None]]


@pytest.fixture(autouse=True, params=["off", "on"], ids=["websockets", "picows"])
def speed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs on both libraries."""
    chosen: str = request.param
    monkeypatch.setitem(ENVIRONMENT, "HANZO_PUBSUB_SPEED", chosen)
    return chosen


def count_writes(transport: WebSocketTransport) -> list[int]:
    """Record the sizes of writes to the network from now on."""
    writes: list[int] = []

    class Counting:
        def __init__(self, real: Any) -> None:
            self._real = real

        def write(self, data: bytes) -> None:
            writes.append(len(data))
            self._real.write(data)

        def send(self, kind: object, data: bytes) -> None:
            writes.append(len(data))
            self._real.send(kind, data)

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._real, name)
            return Counting(found) if name == "underlying_transport" else found

    connection: Any = transport._connection
    name = "_socket" if isinstance(connection, PicowsConnection) else "transport"
    setattr(connection, name, Counting(getattr(connection, name)))
    return writes


class FakeClock(SystemClock):
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def envelope(number: int, data: Any = None) -> dict[str, Any]:
    return {"id": f"m{number}", "topic": "a.b", "type": "t", "data": data, "timestamp": number}


def message(number: int, data: Any = None) -> bytes:
    return json.dumps({"type": "message", "message": envelope(number, data)}).encode()


def wire(data: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=False)


def make(url: str, clock: SystemClock | None = None, **more: Any) -> WebSocketTransport:
    transport = more.pop("transport", "auto")
    options = read_options(url, TOKEN, transport=transport, settings=more, environ=ENVIRONMENT)
    return WebSocketTransport(options, clock or SystemClock())


@asynccontextmanager
async def server(handler: Handler, **more: Any) -> AsyncGenerator[str]:
    more.setdefault("compression", None)
    async with serve(
        handler, "127.0.0.1", 0, ping_interval=None, close_timeout=1, **more
    ) as running:
        yield f"ws://127.0.0.1:{next(iter(running.sockets)).getsockname()[1]}/ws"


@asynccontextmanager
async def raw_server(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None = None,
) -> AsyncGenerator[str]:
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await handler(reader, writer)
        writer.close()

    listening = await asyncio.start_server(run, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"{'ws' if context is None else 'wss'}://127.0.0.1:{port}/ws"
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def shaken(head: bytes) -> bytes:
    """Return the server's response to a handshake."""
    key = head.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0].decode()
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        + f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode()
    )


@asynccontextmanager
async def opened(
    handler: Handler, clock: SystemClock | None = None, **settings: Any
) -> AsyncGenerator[WebSocketTransport]:
    async with asyncio.timeout(60), server(handler) as url:
        transport = make(url, clock, **settings)
        await open_transport(transport)
        try:
            yield transport
        finally:
            await transport.close()


def ended(transport: WebSocketTransport) -> tuple[int | None, str]:
    """Return how the connection of a closed transport has ended; it has passed nothing on."""
    connection = transport._connection
    assert connection is not None
    assert (connection.ended, connection.arrived) == (True, [])
    return connection.end()


async def collect(transport: WebSocketTransport, count: int) -> list[Incoming]:
    found: list[Incoming] = []
    while len(found) < count:
        found += await receive(transport)
    return found


async def to_the_end(transport: WebSocketTransport) -> tuple[list[Incoming], TransportClosed]:
    found: list[Incoming] = []
    while True:
        try:
            found += await receive(transport)
        except TransportClosed as closed:
            return found, closed


def messages(frames: Sequence[Incoming]) -> list[Message]:
    """Return the live messages, with or without their frames."""
    bare = [frame.message if isinstance(frame, MessageFrame) else frame for frame in frames]
    return [message for message in bare if isinstance(message, Message)]


def numbers(frames: Sequence[Incoming]) -> list[int]:
    return [message.timestamp for message in messages(frames)]


async def failure(url: str, **settings: Any) -> TransportFailed:
    transport = make(url, **settings)
    with pytest.raises(TransportFailed) as caught:
        async with asyncio.timeout(60):
            await open_transport(transport)
    await transport.close()
    return caught.value


# ---------------------------------------------------------------- both ways


async def test_frames_go_both_ways_in_order() -> None:
    async def echo(connection: ServerConnection) -> None:
        async for text in connection:
            assert isinstance(text, str)
            data = json.loads(text)["message"]["data"]
            await connection.send(message(data).decode())

    async with opened(echo) as transport:
        for n in range(100):
            transport.send(PublishFrame(message=Publication(topic="a", data=n)))
        assert numbers(await collect(transport, 100)) == list(range(100))


def test_frames_go_both_ways_in_a_loop_that_reads_into_a_buffer_of_its_own() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_frames_go_both_ways_in_order())


def test_an_idle_connection_keeps_nothing_of_its_last_read_in_such_a_loop() -> None:
    async def send(connection: ServerConnection) -> None:
        await connection.send(json.dumps({"type": "large", "data": "x" * 32_768}))
        await connection.wait_closed()

    async def keep() -> None:
        async with opened(send) as transport:
            await collect(transport, 1)
            kept = vars(transport._connection).values()
            assert not [one for one in kept if isinstance(one, (bytes, memoryview)) and len(one)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(keep())


async def test_the_first_frames_of_a_long_loop_turn_leave_before_it_ends() -> None:
    got: list[str | bytes] = []
    done = asyncio.Event()

    async def keep(connection: ServerConnection) -> None:
        async for text in connection:
            got.append(text)
            if len(got) == 50:
                done.set()

    async with opened(keep) as transport:
        writes = count_writes(transport)
        for count in range(1, 51):
            transport.send(PingFrame())
            assert len(writes) == count // 16
        await done.wait()
        assert len(writes) == 4


async def answer(connection: ServerConnection) -> None:
    async for _ in connection:
        await connection.send('{"type":"pong"}')


async def test_a_frame_that_waits_for_no_other_is_written_at_once() -> None:
    async with opened(answer) as transport:
        transport.send(PingFrame())
        await collect(transport, 1)
        writes = count_writes(transport)
        transport.send(PingFrame())
        assert len(writes) == 1  # before the next turn of the loop
        transport.send(PingFrame())
        assert len(writes) == 1
        await collect(transport, 2)
        assert len(writes) == 2


@pytest.mark.parametrize("speed", ["on"], indirect=True)
async def test_the_masking_key_of_a_lone_frame_cannot_be_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def random(size: int) -> bytes:
        sizes.append(size)
        return os.urandom(size)

    monkeypatch.setattr(frames, "urandom", random)
    async with opened(answer) as transport:
        transport.send(PingFrame())
        await collect(transport, 1)
    assert sizes == [4]


async def test_where_several_frames_go_between_two_arrivals_they_share_a_write() -> None:
    async def answer_three(connection: ServerConnection) -> None:
        while True:
            for _ in range(3):
                await connection.recv()
            await connection.send('{"type":"pong"}')

    async with opened(answer_three) as transport:
        for _ in range(2):
            writes = count_writes(transport)
            for _ in range(3):
                transport.send(PingFrame())
            assert writes == []  # until the next turn of the loop
            await collect(transport, 1)
            assert len(writes) == 1


async def test_frames_that_arrive_together_are_passed_on_together() -> None:
    async def burst(connection: ServerConnection) -> None:
        connection.transport.write(b"".join(wire(message(n)) for n in range(20)))
        await connection.wait_closed()

    async with opened(burst) as transport:
        assert numbers(await receive(transport)) == list(range(20))


async def test_fragments_binary_frames_and_all_lengths_are_read() -> None:
    sizes = (10, 125, 126, 65_535, 65_536, 300_000)

    async def send(connection: ServerConnection) -> None:
        for number, size in enumerate(sizes):
            await connection.send(message(number, "x" * size).decode())
        whole = message(90, "y" * 1_000)
        first, second = wire(whole[:7], fin=False), wire(whole[7:500], Opcode.CONT, fin=False)
        connection.transport.write(first + wire(b"", Opcode.PING) + second)
        connection.transport.write(wire(whole[500:], Opcode.CONT))
        await connection.send(message(91))
        await connection.wait_closed()

    async with opened(send) as transport:
        frames = await collect(transport, len(sizes) + 2)
        assert numbers(frames) == [*range(len(sizes)), 90, 91]
        lengths = [len(message.data or "") for message in messages(frames)]
        assert lengths == [*sizes, 1_000, 0]


async def test_a_replay_of_a_hundred_full_messages_fits() -> None:
    history = [envelope(n, "x" * 262_000) for n in range(100)]

    async def send(connection: ServerConnection) -> None:
        frame = {"type": "subscribed", "topics": ["a.b"], "history": history}
        await connection.send(json.dumps(frame))
        await connection.wait_closed()

    async with opened(send) as transport:
        (frame,) = await collect(transport, 1)
        assert isinstance(frame, SubscribedFrame)
        assert len(frame.history or []) == 100


async def test_a_frame_over_the_limit_ends_the_connection_with_1009() -> None:
    async def send(connection: ServerConnection) -> None:
        await connection.send(message(1).decode())
        await connection.send(message(2, "x" * 5_000).decode())
        await connection.wait_closed()

    async with opened(send, max_frame=2_000) as transport:
        frames, closed = await to_the_end(transport)
        assert numbers(frames) == [1]
        assert closed.code == 1009


async def test_unreadable_frames_are_passed_on_as_such() -> None:
    async def send(connection: ServerConnection) -> None:
        for text in ("{", '{"type":"constructor"}', '{"type":"message"}', '{"type":"pong"}'):
            await connection.send(text)
        await connection.send(b"\xff\xfe")
        connection.transport.write(wire(b"\xff"))
        await connection.send(message(1).decode())
        await connection.wait_closed()

    async with opened(send) as transport:
        frames = await collect(transport, 7)
    kinds = (Malformed, Unknown, Malformed, PongFrame, Malformed, Malformed, MessageFrame)
    assert tuple(map(type, frames)) == kinds
    assert frames[4:6] == [Malformed("not UTF-8")] * 2
    assert numbers(frames) == [1]


async def test_an_answer_to_a_publish_is_read_in_every_shape_that_peers_send() -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.send('{"type":"published","id":"m1","ref":5}')
        await connection.send('{"type":"published","id":"m1","timestamp":"soon","ref":"p6"}')
        await connection.send('{"type":"published",')
        await connection.send('{"type":"published","id":"m1","ref":"p7"}')

    async with opened(talk) as transport:
        found = await collect(transport, 4)
        assert isinstance(found.pop(2), Malformed)
        assert [getattr(one, "ref", None) for one in found] == ["5", "p6", "p7"]


async def test_compression_is_used_where_it_is_asked_for() -> None:
    seen: list[str | None] = []

    async def send(connection: ServerConnection) -> None:
        assert connection.request is not None
        seen.append(connection.request.headers.get("Sec-WebSocket-Extensions"))
        await connection.send(message(1, "x" * 1_000).decode())
        await connection.wait_closed()

    async with asyncio.timeout(60), server(send, compression="deflate") as url:
        for wanted in (True, False):
            transport = make(url, compression=wanted)
            await open_transport(transport)
            assert numbers(await receive(transport)) == [1]
            await transport.close()
    assert "permessage-deflate" in (seen[0] or "")
    assert seen[1] is None


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("code", "reason"), [(1000, ""), (1001, "draining"), (4401, "token expired"), (4500, "slow")]
)
async def test_a_close_reports_its_code_after_all_frames(code: int, reason: str) -> None:
    async def end(connection: ServerConnection) -> None:
        for number in range(100):
            await connection.send(message(number).decode())
        await connection.close(code, reason)

    async with opened(end) as transport:
        frames, closed = await to_the_end(transport)
        assert numbers(frames) == list(range(100))
        assert closed.code == code
        assert reason in closed.reason


async def test_a_lost_connection_has_no_code() -> None:
    async def cut(connection: ServerConnection) -> None:
        await connection.send(message(1).decode())
        connection.transport.abort()

    async with opened(cut) as transport:
        _, closed = await to_the_end(transport)
        assert closed.code is None
        assert closed.reason


async def test_a_close_frame_without_a_code_is_answered_as_the_protocol_requires() -> None:
    answered = asyncio.Event()

    async def end(connection: ServerConnection) -> None:
        connection.protocol.send_close()
        connection.send_data()
        await connection.wait_closed()
        assert connection.protocol.close_rcvd is not None
        answered.set()

    async with opened(end) as transport:
        with pytest.raises(TransportClosed) as caught:
            await receive(transport)
        assert caught.value.code == 1005
        await asyncio.wait_for(answered.wait(), 60)


async def test_a_peer_that_sends_a_close_frame_and_leaves_tcp_open_does_not_block_the_reader() -> (
    None
):
    hold = asyncio.Event()

    async def linger(connection: ServerConnection) -> None:
        connection.transport.pause_reading()
        connection.transport.write(wire(Close(4403, "no").serialize(), Opcode.CLOSE))
        await hold.wait()
        connection.transport.abort()

    async with opened(linger) as transport:
        connection = transport._connection
        assert connection is not None
        with pytest.raises(TransportClosed) as caught:
            await receive(transport)
        assert caught.value.code == 4403
        await connection.wait_closed()
        hold.set()


async def test_garbage_after_the_handshake_ends_the_connection() -> None:
    async def garble(connection: ServerConnection) -> None:
        connection.transport.write(b"\xff" * 100)
        await connection.wait_closed()

    async with opened(garble) as transport:
        _, closed = await to_the_end(transport)
        assert closed.code == 1002


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (wire(Close(4001, "bye").serialize(), Opcode.CLOSE), 4001),
        (wire(b"rest", Opcode.CONT), 1002),
        (wire(b"{", fin=False) + wire(b"x" * 3_000, Opcode.CONT), 1009),
        (wire(b"{", fin=False) + wire(message(0)), 1002),
    ],
    ids=["a close frame", "a part of nothing", "too long a message", "a message within another"],
)
async def test_messages_of_one_read_count_until_the_frame_that_ends_the_connection(
    last: bytes, code: int
) -> None:
    async def send(connection: ServerConnection) -> None:
        later = wire(message(2, "x" * 500)) + wire(message(3))
        connection.transport.write(wire(message(1)) + last + later)
        await connection.wait_closed()

    async with opened(send, max_frame=2_000) as transport:
        frames, closed = await to_the_end(transport)
        assert numbers(frames) == [1]
        assert closed.code == code


async def nobody(connection: ServerConnection) -> None:
    await connection.wait_closed()


async def test_close_is_bounded_when_the_server_is_frozen() -> None:
    release = asyncio.Event()

    async def freeze(connection: ServerConnection) -> None:
        connection.transport.pause_reading()
        await release.wait()
        connection.transport.abort()

    async with asyncio.timeout(60), server(freeze) as url:
        transport = make(url)
        await open_transport(transport)
        big = PublishFrame(message=Publication(topic="a", data="x" * 200_000))
        for _ in range(50):
            transport.send(big)
        await asyncio.sleep(0)
        await transport.close()
        connection = transport._connection
        assert connection is not None
        await connection.wait_closed()
        release.set()


async def test_close_sends_what_is_queued_and_its_code_and_can_be_repeated() -> None:
    got: list[str | bytes] = []
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def keep(connection: ServerConnection) -> None:
        with contextlib.suppress(Exception):
            while True:
                got.append(await connection.recv())
        codes.put_nowait(connection.close_code)

    async with opened(keep) as transport:
        transport.send(PingFrame())
        await transport.close(4408)
        await transport.close()
        assert await codes.get() == 4408
        assert got == ['{"type":"ping"}']
        transport.send(PingFrame())


async def test_messages_that_come_after_a_goodbye_are_dropped_and_its_answer_is_read() -> None:
    async def answer_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(shaken(await reader.readuntil(b"\r\n\r\n")))
        await reader.readexactly(8)  # the masked close frame with its code
        late = [wire(message(number)) for number in range(3)]
        writer.write(b"".join(late) + wire(Close(4001, "late").serialize(), Opcode.CLOSE))
        await writer.drain()

    async with asyncio.timeout(60), raw_server(answer_late) as url:
        transport = make(url)
        await open_transport(transport)
        await transport.close()
        assert ended(transport) == (4001, "late")


async def test_a_close_ends_although_data_in_transit_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine, the 10 MB before the answer may take longer than a second.
    for module in ("websocket", "websockets_connection", "picows_connection"):
        monkeypatch.setattr(f"hanzoai.pubsub.transports.{module}.CLOSE_TIMEOUT", 50.0)
    data = wire(message(1, "x" * 10_000))

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(shaken(await reader.readuntil(b"\r\n\r\n")) + data * 1_000)
        await reader.readexactly(8)
        writer.write(wire(Close(4001, "").serialize(), Opcode.CLOSE))
        await writer.drain()

    async with asyncio.timeout(60), raw_server(flood) as url:
        transport = make(url)
        await open_transport(transport)
        transport.pause()
        connection = transport._connection
        assert connection is not None
        while not transport._held:  # noqa: ASYNC110 - the network has no event for it
            await asyncio.sleep(0)
        await transport.close()
        assert ended(transport)[0] == 4001


async def test_a_transport_that_was_never_opened_is_closed() -> None:
    transport = make("ws://127.0.0.1:1/ws")
    transport.send(PingFrame())
    await transport.close()


async def test_a_dial_that_is_cancelled_is_cut_although_no_answer_has_come() -> None:
    asked, cut = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        cut.set()

    async with raw_server(silent) as url:
        transport = make(url, open_timeout=600)
        dialing = asyncio.create_task(open_transport(transport))
        await asked.wait()
        dialing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialing
        await transport.close()
        await asyncio.wait_for(cut.wait(), 60)


async def test_a_handshake_that_is_answered_after_the_dial_was_given_up_leaves_no_socket() -> None:
    asked, given_up, cut = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await given_up.wait()
        writer.write(shaken(head))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        cut.set()

    async with raw_server(late) as url:
        transport = make(url)
        dialing = asyncio.create_task(open_transport(transport))
        await asked.wait()
        dialing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialing
        given_up.set()
        await transport.close()
        await asyncio.wait_for(cut.wait(), 60)


@pytest.mark.parametrize("turns", range(6))
def test_a_program_that_ends_while_a_handshake_is_answered_leaves_no_task(
    caplog: pytest.LogCaptureFixture, turns: int
) -> None:
    """The answer comes some turns of the loop after `asyncio.run` began to cancel the tasks."""
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as stack:
        listening.setblocking(False)
        url = f"ws://127.0.0.1:{listening.getsockname()[1]}/ws"

        async def begin() -> None:
            dialing = asyncio.create_task(open_transport(make(url)))
            loop = asyncio.get_running_loop()
            peer, _ = await loop.sock_accept(listening)
            stack.enter_context(peer)
            head = await loop.sock_recv(peer, 4_096)
            peer.setblocking(True)

            def answer(left: int) -> None:
                if left:
                    loop.call_soon(answer, left - 1)
                else:
                    peer.sendall(shaken(head))

            answer(turns)
            assert not dialing.done()

        asyncio.run(begin())
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


# ---------------------------------------------------------------- life


async def test_every_byte_counts_as_received_pings_too() -> None:
    clock = FakeClock()
    step = asyncio.Event()

    async def ping(connection: ServerConnection) -> None:
        await step.wait()
        await (await connection.ping())
        await connection.send('{"type":"pong"}')
        await connection.wait_closed()

    async with opened(ping, clock) as transport:
        assert transport.last_received == 100.0
        clock.time = 200.0
        assert transport.last_received == 100.0
        step.set()
        await receive(transport)
        assert transport.last_received == 200.0


async def test_each_part_of_a_large_frame_counts_as_received() -> None:
    clock = FakeClock()
    data = wire(message(1, "x" * 500_000))
    first, second = asyncio.Event(), asyncio.Event()

    async def slowly(connection: ServerConnection) -> None:
        await first.wait()
        connection.transport.write(data[:1_000])
        await second.wait()
        connection.transport.write(data[1_000:])
        await connection.wait_closed()

    async with opened(slowly, clock) as transport:
        clock.time = 200.0
        first.set()
        for _ in range(10_000):
            if transport.last_received == 200.0:
                break
            await asyncio.sleep(0)
        seen = transport.last_received
        second.set()
        assert numbers(await receive(transport)) == [1]
        assert seen == 200.0


async def test_frames_of_one_write_are_read_and_measured_each_by_itself() -> None:
    def canonical(number: int, data: Any) -> bytes:
        frame = {"type": "message", "message": envelope(number, data)}
        return json.dumps(frame, separators=(",", ":")).encode()

    deep = json.loads("[" * 300 + "]" * 300)
    pong = json.dumps({"type": "pong", "x": "x" * 2_000}).encode()
    frames = [
        canonical(1, ""),
        canonical(2, "x" * 1_000),
        canonical(3, deep),
        pong,
        canonical(4, ""),
    ]

    async def send(connection: ServerConnection) -> None:
        connection.transport.write(b"".join(map(wire, frames)))
        await connection.wait_closed()

    async with opened(send) as transport:
        kinds: list[type] = []
        while len(kinds) < len(frames):
            for frame in await receive(transport):
                kinds += map(type, frame) if isinstance(frame, list) else [type(frame)]
        assert kinds == [Message, Message, Malformed, PongFrame, Message]
        assert transport.largest == len(frames[1])


async def test_a_reader_that_does_not_read_stops_the_network_and_gets_all_of_it_later() -> None:
    sent = 0
    data = wire(message(1, "x" * 10_000))

    async def flood(connection: ServerConnection) -> None:
        nonlocal sent
        for _ in range(3_000):
            connection.transport.write(data)
            sent += 1
            await connection.drain()
        await connection.wait_closed()

    async with opened(flood) as transport:
        transport.pause()
        connection = transport._connection
        assert connection is not None
        while not transport._held:  # noqa: ASYNC110 - the network has no event for it
            await asyncio.sleep(0)
        held = len(connection.arrived)
        assert held * len(data) < 3 << 20
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(connection.arrived) == held
        transport.resume()
        assert len(messages(await collect(transport, 3_000))) == 3_000
        assert connection.arrived == []
        if isinstance(connection, PicowsConnection):
            network: Any = connection._socket.underlying_transport
            assert len(network.get_protocol().get_buffer(-1)) <= 1 << 19


def test_messages_that_come_while_the_connection_opens_count_for_the_limit_too() -> None:
    data = wire(message(1, "x" * 200_000))

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(shaken(await reader.readuntil(b"\r\n\r\n")))
        for _ in range(150):
            writer.write(data)
            await writer.drain()
        await reader.read()

    async def hold() -> None:
        async with asyncio.timeout(60), raw_server(flood) as url:
            transport = make(url)
            await transport.open(Received())
            connection = transport._connection
            assert connection is not None
            while not transport._held:  # noqa: ASYNC110 - the network has no event for it
                await asyncio.sleep(0)
            assert sum(map(len, connection.arrived)) < 3 << 20
            await transport.close()

    # Unlike the loop of asyncio, it reads several times in one turn.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hold())


# ---------------------------------------------------------------- failures to open


@pytest.mark.parametrize(
    ("status", "headers", "choice", "code", "retry_after"),
    [
        (401, {}, "websocket", 4401, None),
        (403, {}, "websocket", 4403, None),
        (401, {}, "auto", None, None),
        (403, {}, "auto", None, None),
        (429, {"Retry-After": "7"}, "auto", 4429, 7.0),
        (503, {"Retry-After": "2"}, "websocket", 1013, 2.0),
        (404, {}, "auto", None, None),
        (426, {}, "auto", None, None),
        (200, {}, "auto", None, None),
        (500, {}, "auto", None, None),
    ],
)
async def test_a_rejected_handshake_reports_its_status_and_what_to_check(
    status: int, headers: dict[str, str], choice: str, code: int | None, retry_after: float | None
) -> None:
    async def refuse(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(HTTPStatus(status), "no")
        response.headers.update(headers)
        return response

    async with server(nobody, process_request=refuse) as url:
        error = await failure(url, transport=choice)
    assert (error.code, error.retry_after) == (code, retry_after)
    assert f"HTTP {status}" in error.reason
    remedies = {
        200: "Check the host and the port of the URL: no PubSub server answers there.",
        404: "Check the port and the path of the URL, usually 8057 and /ws.",
        426: "Let the proxy in front of the server pass the WebSocket upgrade.",
    }
    assert error.reason == f"The server answered the WebSocket handshake with HTTP {status}."
    assert remedy_of(error.reason) == remedies.get(status)


async def test_a_redirect_is_not_followed() -> None:
    reached: list[str] = []

    async def elsewhere(connection: ServerConnection) -> None:
        reached.append("elsewhere")

    async with server(elsewhere) as other:

        async def redirect(connection: ServerConnection, request: Request) -> Response:
            response = connection.respond(HTTPStatus.FOUND, "")
            response.headers["Location"] = other
            return response

        async with server(nobody, process_request=redirect) as url:
            error = await failure(url)
    assert "follows no redirect" in error.reason
    assert reached == []


async def test_a_port_without_a_listener_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = await failure(f"ws://127.0.0.1:{port}/ws")
    assert error.reason == f"127.0.0.1:{port} refused the connection: no program uses this port."
    assert error.code is None


async def test_an_unknown_host_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*args: object, **kwargs: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    error = await failure("wss://nowhere.invalid/ws", proxy=False)
    assert error.reason == "The host name nowhere.invalid cannot be resolved."


@pytest.mark.parametrize("speed", ["auto", "off"])
@pytest.mark.parametrize("host", ["a..b.invalid", "\u00fc..b.invalid", f"{'x' * 64}.invalid"])
@pytest.mark.parametrize("proxy", [True, False])
async def test_a_host_name_that_cannot_exist_is_reported(
    monkeypatch: pytest.MonkeyPatch, host: str, speed: str, *, proxy: bool
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    error = await failure(f"wss://{host}/ws", proxy=proxy, speed=speed)
    assert error.reason == f"The host name {host} cannot be resolved."


@pytest.mark.parametrize("given", [True, False])
async def test_a_proxy_that_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, *, given: bool
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = f"http://me:s3cr3t@127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", proxy)
        error = await failure("wss://ps.invalid/ws", proxy=proxy if given else True)
    assert error.reason == "The proxy 127.0.0.1 refused the connection: no program uses this port."


async def test_an_unusable_proxy_is_reported_without_its_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_package(*_: object, **__: object) -> object:
        raise ImportError

    monkeypatch.setattr("websockets.asyncio.client.connect_socks_proxy", without_package)
    error = await failure("wss://ps.invalid/ws", proxy="socks5h://me:s3cr3t@127.0.0.1:1")
    assert "SOCKS" in error.reason
    for proxy in ("http://me:s3cr3t@127.0.0.1:port", "other://me:s3cr3t@127.0.0.1:1"):
        monkeypatch.setenv("https_proxy", proxy)
        error = await failure("wss://ps.invalid/ws")
        assert "URL of the proxy is invalid" in error.reason
        assert "s3cr3t" not in error.reason


@pytest.mark.parametrize(
    "answer",
    [b"", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"\x00" * 50_000],
    ids=["closed at once", "another protocol", "a bad handshake", "zeros"],
)
async def test_a_server_without_websockets_is_reported(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with raw_server(reply) as url:
        error = await failure(url)
    assert "127.0.0.1" in error.reason
    assert error.code is None


async def test_an_unresponsive_address_fails_after_open_timeout() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(silent) as url:
        error = await failure(url, open_timeout=0.05)
    assert "did not answer in time" in error.reason


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


async def test_tls_with_a_trusted_certificate_connects(
    authority: trustme.CA, tls: ssl.SSLContext
) -> None:
    async def send(connection: ServerConnection) -> None:
        await connection.send(message(1).decode())
        await connection.wait_closed()

    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with asyncio.timeout(60), server(send, ssl=tls) as url:
        transport = make(url.replace("ws:", "wss:"), ssl_context=trusting)
        await open_transport(transport)
        assert numbers(await receive(transport)) == [1]
        await transport.close()


async def test_an_untrusted_certificate_is_reported(tls: ssl.SSLContext) -> None:
    async with server(nobody, ssl=tls) as url:
        error = await failure(url.replace("ws:", "wss:"))
    assert "certificate of 127.0.0.1 is not trusted" in error.reason


async def test_a_server_that_requires_a_client_certificate_is_reported(
    authority: trustme.CA, speed: str
) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with rejecting(authority, "127.0.0.1") as port:
        error = await failure(f"wss://127.0.0.1:{port}/ws", ssl_context=trusting)
    # picows does not say why a connection ended.
    why = (
        "127.0.0.1 requires a client certificate."
        if speed == "off"
        else "127.0.0.1 closed the connection without an answer to the WebSocket handshake. "
        "If it requires a client certificate, load one into `ssl_context`."
    )
    assert error.reason == why


async def test_tls_to_a_plaintext_port_is_reported() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with raw_server(plain) as url:
        error = await failure(url.replace("ws:", "wss:"))
    assert error.reason.startswith("TLS with 127.0.0.1:")


# ---------------------------------------------------------------- secrets


async def test_the_token_is_in_the_auth_frame_alone(caplog: pytest.LogCaptureFixture) -> None:
    requests: list[Request] = []
    frames: asyncio.Queue[str | bytes] = asyncio.Queue()

    async def keep(connection: ServerConnection) -> None:
        assert connection.request is not None
        requests.append(connection.request)
        frames.put_nowait(await connection.recv())

    quiet = logging.getLogger("websockets.server")
    quiet.setLevel(logging.WARNING)
    caplog.set_level(logging.DEBUG)
    try:
        async with opened(keep) as transport:
            transport.send(AuthFrame(token=TOKEN, version=1))
            assert json.loads(await frames.get())["token"] == TOKEN
            with pytest.raises(TransportClosed):
                await receive(transport)
    finally:
        quiet.setLevel(logging.NOTSET)
    (request,) = requests
    assert "Authorization" not in request.headers
    assert request.headers["User-Agent"].startswith("hanzoai.pubsub/")
    assert TOKEN not in request.path + str(request.headers)
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(transport)


async def test_frames_that_come_with_the_answer_to_the_handshake_are_read() -> None:
    opened = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, second, third = (wire(message(n)) for n in range(3))
        writer.write(shaken(head) + first + second[:5])
        await opened.wait()
        writer.write(second[5:] + third)
        await reader.read()

    async with raw_server(answer) as url:
        transport = make(url)
        await open_transport(transport)
        opened.set()
        assert numbers(await collect(transport, 3)) == [0, 1, 2]
        await transport.close()


async def test_a_connection_that_receives_little_takes_little_memory() -> None:
    async def wait(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with server(wait) as url:
        transports = [make(url) for _ in range(10)]
        tracemalloc.start()
        try:
            for transport in transports:
                await open_transport(transport)
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        for transport in transports:
            await transport.close()
    assert taken < 10 * 150_000


@pytest.mark.parametrize("speed", ["off"], indirect=True)
async def test_messages_in_one_frame_do_not_pass_the_parser_of_the_library() -> None:
    parsed: list[bytes] = []

    async def send(connection: ServerConnection) -> None:
        await connection.recv()
        connection.transport.write(wire(message(1)) + wire(b"", Opcode.PING) + wire(message(2)))
        await connection.wait_closed()

    async with opened(send) as transport:
        connection = transport._connection
        assert isinstance(connection, WebsocketsConnection)
        receive_data = connection.protocol.receive_data

        def parse(data: bytes) -> None:
            parsed.append(data)
            receive_data(data)

        connection.protocol.receive_data = parse  # type: ignore[method-assign,assignment]
        transport.send(PingFrame())
        assert numbers(await collect(transport, 2)) == [1, 2]
    assert parsed[0] == wire(b"", Opcode.PING)


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ({"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ({"http_proxy": "http://proxy:3128"}, None),
        ({"all_proxy": "socks5h://proxy:1080"}, "socks5h://proxy:1080"),
        ({"all_proxy": "http://a:1", "https_proxy": "http://b:1"}, "http://b:1"),
        ({"socks_proxy": "http://a:1", "https_proxy": "http://b:1"}, "socks5h://a:1"),
        ({"wss_proxy": "http://a:1", "https_proxy": "http://b:1"}, "http://a:1"),
        ({"all_proxy": "http://a:1", "no_proxy": "ps.invalid"}, None),
        ({"all_proxy": "http://a:1", "no_proxy": "ps.invalid:8057"}, None),
        ({"all_proxy": "http://a:1", "no_proxy": "ps.invalid:8056"}, "http://a:1"),
    ],
)
def test_a_websocket_uses_the_proxy_of_the_system(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    options = read_options("wss://ps.invalid:8057/ws", "token", settings={})
    assert socket_proxy(options) == proxy


@pytest.mark.parametrize(
    ("url", "excluded"),
    [
        ("wss://ps.invalid/ws", "ps.invalid:443"),
        ("ws://ps.invalid/ws", "ps.invalid:80"),
        ("https://ps.invalid", "PS.INVALID:443"),
        ("wss://ps.invalid/ws", ".invalid"),
        ("wss://[2001:db8::1]/ws", "2001:db8::1"),
        ("wss://[2001:db8::1]:8057/ws", "2001:db8::1"),
        ("https://[2001:db8::1]:8057", "[2001:db8::1]"),
        ("wss://[2001:db8::1]/ws", "[2001:db8::1]:443"),
    ],
)
def test_no_proxy_excludes_a_host_or_its_port(
    monkeypatch: pytest.MonkeyPatch, url: str, excluded: str
) -> None:
    monkeypatch.setenv("all_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "other.invalid")
    assert system_proxy(url) == "http://proxy:3128"
    monkeypatch.setenv("no_proxy", f"{excluded}, other.invalid")
    assert system_proxy(url) is None


@pytest.mark.parametrize("name", ["all_proxy", "https_proxy"])
async def test_a_proxy_that_rejects_a_websocket_is_named_with_its_status(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    answers = {
        "407 Authentication Required": "The proxy 127.0.0.1 answered HTTP 407.",
        "502 Bad Gateway": "The proxy 127.0.0.1 rejected the connection to ps.invalid (HTTP 502).",
    }
    for answer, reason in answers.items():

        async def reject(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: str = answer
        ) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()

        async with raw_server(reject) as url:
            # Without a scheme, as curl accepts it too.
            monkeypatch.setenv(name, urlsplit(url).netloc)
            error = await failure("wss://ps.invalid/ws")
        assert error.reason == reason


async def test_a_host_that_a_socks_proxy_does_not_resolve_is_named() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        await reader.read()

    async with raw_server(greet) as url:
        error = await failure(
            "wss://ps.invalid/ws", proxy=f"socks5://127.0.0.1:{urlsplit(url).port}"
        )
    assert error.reason.startswith("The host name ps.invalid cannot be resolved on this machine")
    assert "socks5h://" in (remedy_of(error.reason) or "")


async def test_an_address_that_does_not_answer_delays_the_connection_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with server(nobody) as url:
        network = SilentAddresses(monkeypatch)
        transport = make(url.replace("127.0.0.1", "ps.localhost"), open_timeout=60, proxy=False)
        await open_transport(transport)
        await transport.close()
    assert network.asked == [*SILENT, "127.0.0.1"]
    assert sorted(network.given_up) == [*SILENT]


@pytest.mark.parametrize("refusing", SILENT)
async def test_a_refusal_of_one_address_is_reported_rather_than_a_missing_route_to_the_other(
    monkeypatch: pytest.MonkeyPatch, refusing: str
) -> None:
    async def refuse_or_fail(sock: socket.socket, address: Any) -> None:
        raise ConnectionRefusedError if address[0] == refusing else OSError(113, "No route")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", refuse_or_fail)
    resolve_to(monkeypatch, *SILENT)
    error = await failure("wss://ps.invalid/ws", proxy=False)
    assert error.reason == "ps.invalid refused the connection: no program uses this port."


async def test_a_host_is_looked_up_once_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(nobody) as url:
        looked_up = resolve_to(monkeypatch, "127.0.0.1")
        transport = make(url.replace("127.0.0.1", "ps.localhost"), open_timeout=60, proxy=False)
        await open_transport(transport)
        await transport.close()
    assert looked_up == ["ps.localhost"]
