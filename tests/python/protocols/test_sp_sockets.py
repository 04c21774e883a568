"""PUB and SUB sockets for asyncio, over every transport."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import socket
import ssl
import struct
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
import trustme
from websockets.utils import accept_key

from hanzoai.pubsub import sp
from hanzoai.pubsub.errors import (
    ClosedError,
    InvalidOption,
    InvalidPayload,
    OperationTimeout,
    Unsupported,
)
from hanzoai.pubsub.errors import NotFound as AnyNotFound
from hanzoai.pubsub.links.connections import Backoff
from hanzoai.pubsub.sp import Closed, NotFound, NotSupported, PubSocket, SubSocket, blocking
from hanzoai.pubsub.sp.pipe import Pipe
from hanzoai.pubsub.sp.prefixes import Prefixes
from tests.ports import free_port
from tests.python.protocols.sp_peers import HELLO_PUB, HELLO_SUB, PLAIN, TRANSPORTS, Bare, url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

BOUND = 60
TEXT = b"sensor:temp=25"

UPGRADE = (
    b"GET /feed HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: pub.sp.nanomsg.org\r\n\r\n"
)


class Tls:
    """The TLS contexts: the listening side has a certificate, and the dialing side trusts it."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self.server)
        self.client = ssl.create_default_context()
        authority.configure_trust(self.client)

    def pair(self, scheme: str) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
        return (self.server, self.client) if scheme in ("tls+tcp", "wss") else (None, None)


@pytest.fixture(scope="module")
def tls() -> Tls:
    return Tls()


@pytest.fixture
async def pub() -> AsyncIterator[PubSocket]:
    async with PubSocket() as socket:
        yield socket


@pytest.fixture
async def sub() -> AsyncIterator[SubSocket]:
    async with SubSocket() as socket:
        yield socket


async def join(pub: PubSocket, *subs: SubSocket, folder: Path, scheme: str = "ipc") -> str:
    """Let subscribers dial a publisher, and wait until all are connected."""
    target = await pub.listen(url(scheme, folder))
    for sub in subs:
        await sub.dial(target)
    await pub.wait_for_peers(len(subs), timeout=10)
    return target


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until a condition holds, because counters send no notification."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def receive(sub: SubSocket, count: int) -> list[bytes]:
    return [await sub.recv(timeout=10) for _ in range(count)]


@pytest.mark.statement("N-01", "N-31", "N-33", "N-39")
@pytest.mark.parametrize("listens", ["pub", "sub"])
@pytest.mark.parametrize("scheme", TRANSPORTS)
async def test_a_message_arrives_over_every_transport_with_either_side_listening(
    pub: PubSocket, sub: SubSocket, tls: Tls, tmp_path: Path, scheme: str, listens: str
) -> None:
    server, client = tls.pair(scheme)
    a, b = (pub, sub) if listens == "pub" else (sub, pub)
    sub.subscribe(b"sensor")
    target = await a.listen(url(scheme, tmp_path), server)
    assert ":0" not in target
    await b.dial(target, client)
    await pub.wait_for_peers(timeout=10)
    await sub.wait_for_peers(timeout=10)
    pub.send(b"alert:high")
    pub.send(TEXT)
    large = b"sensor" + bytes(range(256)) * 1000
    await pub.send(large)
    assert await receive(sub, 2) == [TEXT, large]
    assert sub.stats.filtered == 1


@pytest.mark.statement("N-01", "N-32", "N-33")
async def test_every_subscriber_gets_every_message_in_order(pub: PubSocket, tmp_path: Path) -> None:
    subs = [SubSocket() for _ in range(5)]
    for sub in subs:
        sub.subscribe(b"")
    await join(pub, *subs, folder=tmp_path)
    bodies = [b"%d" % n for n in range(50)]
    for body in bodies:
        pub.send(body)
    for sub in subs:
        assert await receive(sub, 50) == bodies
        await sub.close()


@pytest.mark.statement("N-02", "N-03", "N-04", "N-24", "N-25", "N-30", "N-32", "N-33")
async def test_subscribers_receive_what_begins_with_one_of_their_prefixes(
    pub: PubSocket, tmp_path: Path
) -> None:
    text, binary = SubSocket(), SubSocket()
    text.subscribe(b"sensor/temperature/")
    text.subscribe(b"alert:")
    binary.subscribe(b"\x01\x02")
    binary.subscribe(b"\x00\xff")
    await join(pub, text, binary, folder=tmp_path)
    for body in (
        b"sensor/temperature/1",
        b"sensor/temperature",
        b"sensor/humidity/1",
        b"\x01\x02\x00",
        b"\x01",
        b"\x00\xff\x00\xff",
        b"",
        b"alert:high",
        b"\x01\x02",
    ):
        pub.send(body)
    assert await receive(text, 2) == [b"sensor/temperature/1", b"alert:high"]
    assert await receive(binary, 3) == [b"\x01\x02\x00", b"\x00\xff\x00\xff", b"\x01\x02"]
    assert text.stats.filtered == 7
    for sub in (text, binary):
        await sub.close()


@pytest.mark.statement("N-05", "N-32")
async def test_an_empty_prefix_receives_everything_and_none_receives_nothing(
    pub: PubSocket, sub: SubSocket, tmp_path: Path
) -> None:
    await join(pub, sub, folder=tmp_path)
    pub.send(b"before")
    await until(lambda: sub.stats.filtered > 0)
    sub.subscribe(b"")
    pub.send(b"")
    pub.send(b"\0")
    assert await receive(sub, 2) == [b"", b"\0"]


@pytest.mark.statement("N-06", "N-20", "N-21", "N-32")
async def test_prefixes_come_and_go(pub: PubSocket, sub: SubSocket, tmp_path: Path) -> None:
    await join(pub, sub, folder=tmp_path)
    sub.subscribe(b"a")
    sub.subscribe(b"a")
    sub.subscribe(b"b")
    pub.send(b"a1")
    assert await sub.recv(timeout=10) == b"a1"
    sub.unsubscribe(b"a")
    with pytest.raises(NotFound):
        sub.unsubscribe(b"a")
    pub.send(b"a2")
    pub.send(b"b1")
    assert await sub.recv(timeout=10) == b"b1"


@pytest.mark.statement("N-06")
async def test_unsubscribing_forgets_what_waits_and_no_longer_matches(
    pub: PubSocket, sub: SubSocket, tmp_path: Path
) -> None:
    sub.subscribe(b"a")
    sub.subscribe(b"ab")
    sub.subscribe(b"z")
    await join(pub, sub, folder=tmp_path)
    for body in (b"a1", b"ab1", b"a2", b"z"):
        pub.send(body)
    await until(lambda: sub.stats.peers[0].received == 4)
    sub.unsubscribe(b"a")
    assert await receive(sub, 2) == [b"ab1", b"z"]


@pytest.mark.statement("N-07", "N-08", "N-29", "N-32")
async def test_a_socket_refuses_the_wrong_direction(pub: PubSocket, sub: SubSocket) -> None:
    with pytest.raises(NotSupported, match=r"^protocol: operation not supported$"):
        await pub.recv()
    with pytest.raises(NotSupported, match=r"^protocol: operation not supported$"):
        sub.send(b"x")


async def test_a_socket_shows_its_peers_and_whether_it_is_closed(pub: PubSocket) -> None:
    assert repr(pub) == "<PubSocket peers=0>"
    await pub.close()
    assert repr(pub) == "<PubSocket closed>"
    with blocking.SubSocket() as sub:
        assert repr(sub) == "<SubSocket peers=0>"


@pytest.mark.statement("N-29")
def test_socket_errors_are_distinct_classes_of_the_sdk() -> None:
    assert str(NotSupported()) == "protocol: operation not supported"
    assert str(NotFound()) == "protocol: not found"
    assert str(Closed()) == "protocol: closed"
    assert issubclass(NotSupported, Unsupported)
    assert issubclass(NotFound, AnyNotFound)
    assert issubclass(Closed, ClosedError)


@pytest.mark.statement("N-14", "N-16", "N-32")
async def test_sending_without_subscribers_succeeds_and_keeps_nothing(
    pub: PubSocket, sub: SubSocket, tmp_path: Path
) -> None:
    pub.send(b"lost")
    sub.subscribe(b"")
    await join(pub, sub, folder=tmp_path)
    pub.send(b"received")
    assert await sub.recv(timeout=10) == b"received"
    assert pub.stats.sent == 2
    assert [peer.sent for peer in pub.stats.peers] == [1]


@pytest.mark.statement("N-15", "N-33")
async def test_a_late_or_absent_subscriber_misses_messages(pub: PubSocket, tmp_path: Path) -> None:
    first = SubSocket()
    first.subscribe(b"")
    target = await join(pub, first, folder=tmp_path)
    pub.send(b"1")
    assert await first.recv(timeout=10) == b"1"
    await first.close()
    await until(lambda: not pub.stats.peers)
    pub.send(b"2")
    async with SubSocket() as second:
        second.subscribe(b"")
        await second.dial(target)
        await pub.wait_for_peers(timeout=10)
        pub.send(b"3")
        assert await second.recv(timeout=10) == b"3"


@pytest.mark.statement("N-17", "N-26")
@pytest.mark.parametrize("scheme", ["tcp", "ipc", "tls+tcp", "ws", "wss"])
async def test_a_peer_that_does_not_read_fills_only_its_own_queue(
    tls: Tls, tmp_path: Path, scheme: str
) -> None:
    server, client = tls.pair(scheme)
    web = scheme in ("ws", "wss")
    async with PubSocket(send_queue_size=4) as pub, SubSocket(recv_queue_size=1000) as sub:
        sub.subscribe(b"")
        target = await pub.listen(url(scheme, tmp_path), server)
        await sub.dial(target, client)
        await pub.wait_for_peers(timeout=10)
        async with await Bare.connect(target, client) as stuck:
            stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
            stuck.write(UPGRADE if web else HELLO_SUB)
            await pub.wait_for_peers(2, timeout=10)
            bodies = [b"%03d" % n + bytes(64 * 1024) for n in range(200)]
            for body in bodies:
                await pub.send(body)
                assert all(peer.queued <= 4 for peer in pub.stats.peers)
                # This queue is equally short.
                assert await sub.recv(timeout=60) == body
            (slow,) = [peer for peer in pub.stats.peers if peer.dropped]
            assert slow.sent + slow.dropped + slow.queued == 200
            assert pub.stats.dropped_by_peer == slow.dropped
            # The newest messages wait: the oldest were dropped.
            stuck.writer.transport.resume_reading()  # type: ignore[attr-defined]
            if web:
                async with asyncio.timeout(60):
                    await stuck.reader.readuntil(b"\r\n\r\n")
            else:
                assert await stuck.read(8) == HELLO_PUB
            head = {"ipc": 9, "ws": 10, "wss": 10}.get(scheme, 8)
            got = [
                (await stuck.read(head + len(bodies[0])))[head : head + 3]
                for _ in range(slow.sent + slow.queued)
            ]
            # In order, no matter how many messages fit into the buffers of the system.
            assert got == sorted(set(got))
            assert got[0] == b"000"
            assert got[-4:] == [b"%03d" % n for n in range(196, 200)]


@pytest.mark.statement("N-26", "N-27", "N-28")
def test_queues_have_the_documented_sizes() -> None:
    parameters = inspect.signature(PubSocket).parameters
    assert parameters["send_queue_size"].default == 16
    parameters = inspect.signature(SubSocket).parameters
    assert parameters["recv_queue_size"].default == 128
    assert parameters["drop_oldest"].default is True


@pytest.mark.statement("N-27", "N-28")
@pytest.mark.parametrize(
    ("oldest", "kept"), [(True, range(172, 300)), (False, range(128))], ids=["oldest", "newest"]
)
async def test_a_full_receive_queue_drops_by_its_policy(
    tmp_path: Path, oldest: bool, kept: range
) -> None:
    async with PubSocket(send_queue_size=300) as pub, SubSocket(drop_oldest=oldest) as sub:
        sub.subscribe(b"")
        await join(pub, sub, folder=tmp_path)
        for n in range(300):
            pub.send(b"%d" % n)
        await until(lambda: [peer.received for peer in sub.stats.peers] == [300])
        assert await receive(sub, 128) == [b"%d" % n for n in kept]
        assert sub.stats.dropped_by_queue == 172


@pytest.mark.statement("N-27")
async def test_a_program_that_receives_loses_nothing_of_a_burst(tmp_path: Path) -> None:
    async with PubSocket(send_queue_size=5000) as pub, SubSocket(recv_queue_size=8) as sub:
        sub.subscribe(b"")
        await join(pub, sub, folder=tmp_path)
        reading = asyncio.create_task(receive(sub, 5000))
        for n in range(5000):
            pub.send(b"%d" % n)
        assert await reading == [b"%d" % n for n in range(5000)]
        assert sub.stats.dropped_by_queue == 0


@pytest.mark.parametrize("scheme", TRANSPORTS)
async def test_a_program_receives_what_a_publisher_sent_before_it_closed(
    tls: Tls, tmp_path: Path, scheme: str
) -> None:
    server, client = tls.pair(scheme)
    pub = PubSocket(send_queue_size=5000)
    async with SubSocket(recv_queue_size=8) as sub:
        sub.subscribe(b"")
        await sub.dial(await pub.listen(url(scheme, tmp_path), server), client)
        await pub.wait_for_peers(timeout=10)
        reading = asyncio.create_task(receive(sub, 5000))
        for n in range(5000):
            pub.send(b"%d" % n)
        await pub.close(linger=10)
        assert await reading == [b"%d" % n for n in range(5000)]


async def test_a_closed_socket_delivers_nothing_that_still_arrives(
    tls: Tls, tmp_path: Path
) -> None:
    pub, sub = PubSocket(send_queue_size=5000), SubSocket(recv_queue_size=8)
    sub.subscribe(b"")
    await sub.dial(await pub.listen(url("tls+tcp", tmp_path), tls.server), tls.client)
    await pub.wait_for_peers(timeout=10)
    for n in range(5000):
        pub.send(b"%d" % n)
    closing = asyncio.create_task(pub.close(linger=10))
    assert await sub.recv(timeout=10) == b"0"
    await sub.close()
    with pytest.raises(Closed):
        await sub.recv()
    await closing


@pytest.mark.statement("N-19", "N-23")
async def test_bytes_are_copied_on_the_way_in(
    pub: PubSocket, sub: SubSocket, tmp_path: Path
) -> None:
    prefix, body = bytearray(b"a"), bytearray(b"a1")
    sub.subscribe(prefix)
    prefix[:] = b"z"
    await join(pub, sub, folder=tmp_path)
    pub.send(memoryview(body))
    body[:] = b"zz"
    received = await sub.recv(timeout=10)
    assert received == b"a1"
    assert type(received) is bytes


@pytest.mark.statement("N-18", "N-22", "N-32")
async def test_closing_ends_what_waits_and_refuses_what_comes_later(
    pub: PubSocket, sub: SubSocket, tmp_path: Path
) -> None:
    await join(pub, sub, folder=tmp_path)
    sub.subscribe(b"")
    receiving = asyncio.create_task(sub.recv())
    waiting = asyncio.create_task(sub.wait_for_peers(2))
    await asyncio.sleep(0)
    await sub.close()
    await sub.close()
    for task in (receiving, waiting):
        with pytest.raises(Closed, match=r"^protocol: closed$"):
            await task
    with pytest.raises(Closed):
        await sub.recv()
    with pytest.raises(Closed):
        sub.subscribe(b"")
    await pub.close()
    with pytest.raises(Closed):
        pub.send(b"x")
    with pytest.raises(Closed):
        await pub.listen("tcp://127.0.0.1:0")
    assert [body async for body in sub] == []


@pytest.mark.statement("N-13")
async def test_closing_leaves_no_task_thread_or_file(tmp_path: Path) -> None:
    tasks, threads = asyncio.all_tasks(), threading.active_count()
    pub, sub = PubSocket(), SubSocket()
    await sub.dial("tcp://127.0.0.1:1")
    await join(pub, sub, folder=tmp_path)
    assert os.listdir(tmp_path)
    await pub.close()
    await sub.close()
    assert asyncio.all_tasks() == tasks
    assert threading.active_count() == threads
    assert os.listdir(tmp_path) == []


@pytest.mark.statement("N-13")
@pytest.mark.parametrize("scheme", TRANSPORTS)
async def test_closing_while_a_peer_connects_leaves_nothing_open(
    tls: Tls, tmp_path: Path, scheme: str
) -> None:
    server, client = tls.pair(scheme)
    for turns in range(12):
        pub, sub = PubSocket(), SubSocket()
        await sub.dial(await pub.listen(url(scheme, tmp_path), server), client)
        for _ in range(turns):
            await asyncio.sleep(0)
        await pub.close(linger=0)
        await sub.close(linger=0)
    gc.collect()  # open resources cause a warning, which fails the test


async def test_closing_ends_a_listen_in_progress() -> None:
    pub = PubSocket()
    listening = asyncio.create_task(pub.listen("tcp://127.0.0.1:0"))
    await asyncio.sleep(0)
    await pub.close()
    with pytest.raises(Closed):
        await listening
    gc.collect()  # an open socket causes a warning, which fails the test


async def test_closing_ends_a_handshake_in_progress(tls: Tls, tmp_path: Path) -> None:
    pub = PubSocket(hello_timeout=1000)
    target = await pub.listen(url("tls+tcp", tmp_path), tls.server)
    async with await Bare.connect(target) as peer:
        (listener,) = pub._listeners
        await until(lambda: bool(listener._connecting))
        await pub.close()
        assert await peer.rest() == b""


async def test_closing_leaves_the_socket_file_of_another_socket(tmp_path: Path) -> None:
    target = url("ipc", tmp_path)
    first = PubSocket()
    await first.listen(target)
    os.unlink(target.removeprefix("ipc://"))
    async with PubSocket() as second, SubSocket() as sub:
        await second.listen(target)
        await first.close()
        await sub.dial(target)
        await second.wait_for_peers(timeout=10)


async def test_counters_keep_what_a_peer_has_lost_and_leave_out_strangers(
    tmp_path: Path,
) -> None:
    async with PubSocket(send_queue_size=1) as pub:
        target = await pub.listen(url("tcp", tmp_path))
        async with await Bare.connect(target) as stranger:
            await stranger.read(8)
            assert pub.stats.peers == ()
        async with await Bare.connect(target) as peer:
            peer.write(HELLO_SUB)
            await pub.wait_for_peers(timeout=10)
            while not pub.stats.dropped_by_peer:
                pub.send(bytes(100_000))
            stats = pub.stats
            (before,) = stats.peers
            assert (before.queued, stats.dropped_by_peer) == (1, before.dropped)
        await until(lambda: not pub.stats.peers)
        assert pub.stats.dropped_by_peer == before.dropped + 1
        assert pub.stats.dropped_by_peer + before.sent == pub.stats.sent


async def test_a_close_that_does_not_linger_counts_what_waited_for_a_peer(tmp_path: Path) -> None:
    async with PubSocket(send_queue_size=4) as pub:
        target = await pub.listen(url("tcp", tmp_path))
        async with await Bare.connect(target) as peer:
            peer.write(HELLO_SUB)
            await pub.wait_for_peers(timeout=10)
            while pub.stats.peers[0].queued < 3:
                pub.send(bytes(100_000))
            await pub.close(linger=0)
        assert pub.stats.dropped_by_peer == 3


class Ending:
    """Replaces a pipe: ends when it is closed, or only when it is aborted."""

    def __init__(self, pipes: set[Any], ends_on: str, *, idle: bool) -> None:
        self._pipes = pipes
        self._ends_on = ends_on
        self.idle = idle
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls: list[str] = []

    async def drain(self) -> None:
        if not self.idle:
            await self.ended

    def close(self) -> None:
        self._call("close")

    def abort(self) -> None:
        self._call("abort")

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self._ends_on:
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._pipes.discard(self)
        self.ended.set_result(None)


@pytest.mark.parametrize(
    ("idle", "ends_on", "linger", "calls"),
    [
        (True, "close", BOUND, ["close"]),
        (True, "abort", 0.01, ["close", "abort"]),
        (False, "abort", 0.01, ["abort"]),
    ],
)
async def test_a_socket_closes_a_pipe_that_has_sent_everything_and_aborts_one_that_does_not_end(
    idle: bool, ends_on: str, linger: float, calls: list[str]
) -> None:
    pub = PubSocket()
    pipes: set[Any] = pub._open
    pipe = Ending(pipes, ends_on, idle=idle)
    pipes.add(pipe)
    async with asyncio.timeout(BOUND):
        await pub.close(linger=linger)
    assert pipe.calls == calls


@pytest.mark.parametrize(
    ("full", "queued", "idle"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
async def test_a_pipe_is_idle_if_neither_it_nor_the_system_holds_a_message(
    full: bool, queued: bool, idle: bool
) -> None:
    wire: Any = SimpleNamespace(encoding="sp", encode=bytes)
    pipe = Pipe(cast("Any", PubSocket()), wire, 1)
    pipe._full = full
    pipe._queue.extend([b"x"] * queued)
    assert pipe.idle is idle


async def test_a_peer_that_breaks_the_protocol_and_does_not_read_is_disconnected(
    tmp_path: Path,
) -> None:
    async with PubSocket(send_queue_size=1) as pub:
        target = await pub.listen(url("tcp", tmp_path))
        async with await Bare.connect(target) as peer:
            peer.write(HELLO_SUB)
            await pub.wait_for_peers(timeout=10)
            while not pub.stats.dropped_by_peer:
                pub.send(bytes(100_000))
            peer.write(bytes(8))
            await until(lambda: not pub.stats.peers)
            assert pub.stats.refused == {"unexpected_data": 1}


async def test_messages_to_a_peer_that_has_just_vanished_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with PubSocket() as pub:
        host, port = urlsplit(await pub.listen(url("tcp", tmp_path))).netloc.split(":")
        with socket.socket() as peer:
            peer.setblocking(False)
            await asyncio.get_running_loop().sock_connect(peer, (host, int(port)))
            peer.send(HELLO_SUB)
            await pub.wait_for_peers(timeout=10)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for _ in range(100):
            pub.send(TEXT)
        # The failure of the first write shows that the peer has vanished.
        await until(lambda: not pub.stats.peers)
        assert pub.stats.dropped_by_peer == 99
        await until(lambda: not pub.stats.peers)
    assert not caplog.records


async def test_a_publisher_is_a_peer_before_its_first_message_arrives(tmp_path: Path) -> None:
    async with SubSocket(recv_queue_size=8) as sub:
        sub.subscribe(b"")
        async with await Bare.connect(await sub.listen(url("tcp", tmp_path))) as peer:
            peer.write(HELLO_PUB + b"\0\0\0\0\0\0\0\1x" * 1000)
            assert await sub.recv(timeout=10) == b"x"
            assert len(sub.stats.peers) == 1


async def test_only_a_handshake_makes_the_next_wait_short_again(
    sub: SubSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected, resets = 0, list[int]()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        if connected > 3:
            writer.write(HELLO_PUB)
        writer.close()

    def no_wait(_: Backoff) -> float:
        return 0.0

    def reset(_: Backoff) -> None:
        resets.append(connected)

    monkeypatch.setattr(Backoff, "next", no_wait)
    monkeypatch.setattr(Backoff, "reset", reset)
    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        await sub.dial(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await until(lambda: bool(resets))
        assert resets[0] > 3


@pytest.mark.statement("N-13")
@pytest.mark.parametrize("scheme", TRANSPORTS)
async def test_closing_lets_peers_take_what_is_queued(
    sub: SubSocket, tls: Tls, tmp_path: Path, scheme: str
) -> None:
    server, client = tls.pair(scheme)
    sub.subscribe(b"")
    pub = PubSocket(send_queue_size=64)
    target = await pub.listen(url(scheme, tmp_path), server)
    await sub.dial(target, client)
    await pub.wait_for_peers(timeout=10)
    bodies = [bytes([n]) * 100_000 for n in range(32)]
    for body in bodies:
        pub.send(body)
    await pub.close(linger=10)
    assert await receive(sub, 32) == bodies


@pytest.mark.statement("N-22")
async def test_receiving_may_time_out(sub: SubSocket) -> None:
    sub.subscribe(b"")
    with pytest.raises(OperationTimeout, match=r"within 0\.01 s"):
        await sub.recv(timeout=0.01)
    with pytest.raises(OperationTimeout, match="0 of 1 peers"):
        await sub.wait_for_peers(timeout=0.01)


@pytest.mark.statement("N-22")
async def test_a_cancelled_receive_passes_its_turn_on(
    pub: PubSocket, sub: SubSocket, tmp_path: Path
) -> None:
    sub.subscribe(b"")
    await join(pub, sub, folder=tmp_path)
    first, second = (asyncio.create_task(sub.recv()) for _ in range(2))
    await asyncio.sleep(0)
    sub._inbox.put([b"x"])
    first.cancel()
    assert await second == b"x"


@pytest.mark.statement("N-41")
@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("0053500000100000", "bad_hello"),
        ("0053500000200000", "bad_hello"),
        ("0053500100210000", "bad_hello"),
        ("0053500000210001", "bad_hello"),
        (b"GET / HTTP/1.1".hex(), "bad_hello"),
        (HELLO_SUB.hex() + "00", "unexpected_data"),
    ],
    ids=["protocol", "role", "version", "reserved", "text", "data"],
)
@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
async def test_a_publisher_closes_on_a_peer_that_breaks_the_protocol(
    pub: PubSocket, tmp_path: Path, scheme: str, first: str, reason: str
) -> None:
    target = await pub.listen(url(scheme, tmp_path))
    async with await Bare.connect(target) as peer:
        peer.write(bytes.fromhex(first))
        assert await peer.rest() in (HELLO_PUB, b"")
    assert pub.stats.refused == {reason: 1}


@pytest.mark.statement("N-41")
async def test_a_hello_may_come_byte_by_byte(pub: PubSocket, tmp_path: Path) -> None:
    target = await pub.listen(url("tcp", tmp_path))
    async with await Bare.connect(target) as peer:
        for n in range(8):
            peer.write(HELLO_SUB[n : n + 1])
            await peer.writer.drain()
            await asyncio.sleep(0)
        await pub.wait_for_peers(timeout=10)
        pub.send(TEXT)
        assert (await peer.read(8 + 8 + len(TEXT)))[16:] == TEXT


@pytest.mark.statement("N-41")
@pytest.mark.parametrize("scheme", ["tcp", "ipc", "ws"])
async def test_a_publisher_may_send_its_hello_and_messages_in_one_segment(
    sub: SubSocket, tmp_path: Path, scheme: str
) -> None:
    sub.subscribe(b"")
    target = await sub.listen(url(scheme, tmp_path))
    bodies = [b"%d" % n for n in range(3)]
    start = HELLO_PUB
    if scheme == "ws":
        start = UPGRADE.replace(b"pub.sp", b"sub.sp")
        sent = b"".join(b"\x82\x81\0\0\0\0" + body for body in bodies)
    else:
        mark = b"\1" if scheme == "ipc" else b""
        sent = b"".join(mark + len(body).to_bytes(8, "big") + body for body in bodies)
    async with await Bare.connect(target) as peer:
        peer.write(start + sent)
        assert await receive(sub, 3) == bodies


@pytest.mark.statement("N-41")
async def test_a_publisher_that_is_dialed_may_answer_and_send_in_one_segment(
    sub: SubSocket,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line for line in head.splitlines() if line.startswith("Sec-WebSocket-Key"))
        accepted = accept_key(key.partition(": ")[2])
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Protocol: pub.sp.nanomsg.org\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n\x82\x01a" % accepted.encode()
        )
        await reader.read()
        writer.close()

    sub.subscribe(b"")
    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        await sub.dial(f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/feed")
        assert await sub.recv(timeout=10) == b"a"
        await sub.close()


@pytest.mark.statement("N-41")
@pytest.mark.parametrize("scheme", PLAIN)
async def test_a_peer_without_a_hello_is_closed_in_time(tmp_path: Path, scheme: str) -> None:
    assert inspect.signature(PubSocket).parameters["hello_timeout"].default == 10.0
    async with PubSocket(hello_timeout=0.05) as pub:
        target = await pub.listen(url(scheme, tmp_path))
        if scheme == "abstract":
            reader, writer = await asyncio.open_unix_connection(
                "\0" + target.removeprefix("abstract://")
            )
            peer = Bare(reader, writer)
        else:
            peer = await Bare.connect(target)
        async with peer:
            peer.write(b"" if scheme == "ws" else HELLO_SUB[:7])
            await peer.rest()
        assert pub.stats.refused == {"no_hello": 1}


@pytest.mark.statement("N-41")
@pytest.mark.parametrize(
    ("scheme", "wire", "reason"),
    [
        ("tcp", "00000000000003e9", "oversize"),
        ("tcp", "ffffffffffffffff", "oversize"),
        ("ipc", "0100000000000003e9", "oversize"),
        ("ipc", "00", "bad_type"),
        ("ipc", "02", "bad_type"),
    ],
)
async def test_a_subscriber_closes_on_a_message_that_it_cannot_take(
    tmp_path: Path, scheme: str, wire: str, reason: str
) -> None:
    async with SubSocket(max_message_size=1000) as sub:
        sub.subscribe(b"")
        target = await sub.listen(url(scheme, tmp_path))
        async with await Bare.connect(target) as peer:
            good = (b"\1" if scheme == "ipc" else b"") + (1000).to_bytes(8, "big") + bytes(1000)
            peer.write(HELLO_PUB + good + bytes.fromhex(wire))
            assert await peer.rest() in (HELLO_SUB, b"")
        assert await sub.recv(timeout=10) == bytes(1000)
        assert sub.stats.refused == {reason: 1}


@pytest.mark.statement("N-41")
@pytest.mark.parametrize(
    ("path", "name", "status"),
    [
        ("/feed", "pub.sp.nanomsg.org", "101"),
        ("/feed", "sub.sp.nanomsg.org", "400"),
        ("/feed", "x-nanomsg-pub", "400"),
        ("/feed", "", "400"),
        ("/other", "pub.sp.nanomsg.org", "404"),
    ],
)
async def test_a_websocket_needs_the_path_and_the_name_of_the_listener(
    pub: PubSocket, tmp_path: Path, path: str, name: str, status: str
) -> None:
    target = await pub.listen(url("ws", tmp_path))
    protocol = f"Sec-WebSocket-Protocol: {name}\r\n" if name else ""
    async with await Bare.connect(target) as peer:
        peer.write(
            f"GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            f"{protocol}\r\n".encode()
        )
        async with asyncio.timeout(60):
            head = await peer.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode())
        if status == "101":
            assert f"Sec-WebSocket-Protocol: {name}".encode() in head
            await pub.wait_for_peers(timeout=10)
            pub.send(b"hello")
            assert await peer.read(7) == bytes.fromhex("820568656c6c6f")
        else:
            await peer.rest()
            assert pub.stats.refused == {"bad_hello": 1}


@pytest.mark.statement("N-41")
async def test_a_refused_websocket_may_send_broken_frames_with_its_request(
    pub: PubSocket, tmp_path: Path
) -> None:
    async with await Bare.connect(await pub.listen(url("ws", tmp_path))) as peer:
        peer.write(UPGRADE.replace(b"/feed", b"/other") + bytes.fromhex("8380 00000000"))
        await peer.rest()
        assert pub.stats.refused == {"bad_hello": 1}


async def test_a_publisher_closes_when_a_websocket_says_goodbye(
    pub: PubSocket, tmp_path: Path
) -> None:
    async with await Bare.connect(await pub.listen(url("ws", tmp_path))) as peer:
        peer.write(UPGRADE)
        async with asyncio.timeout(60):
            await peer.reader.readuntil(b"\r\n\r\n")
        peer.write(bytes.fromhex("8882 00000000 03e8"))
        assert await peer.rest() == bytes.fromhex("880203e8")
        await until(lambda: not pub.stats.peers)
        assert pub.stats.refused == {}


async def test_a_publisher_reads_no_more_pings_than_it_can_answer(
    pub: PubSocket, tmp_path: Path
) -> None:
    target = await pub.listen(url("ws", tmp_path))
    async with await Bare.connect(target) as peer:
        peer.write(UPGRADE)
        async with asyncio.timeout(60):
            await peer.reader.readuntil(b"\r\n\r\n")
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        pings = (b"\x89\xfd" + bytes(4 + 125)) * 8000
        for _ in range(100):
            peer.write(pings)
            try:
                async with asyncio.timeout(2):
                    await peer.writer.drain()
            except TimeoutError:
                break
        else:
            pytest.fail("the publisher has kept the answers to all pings")
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        pub.send(b"after")
        draining = asyncio.ensure_future(peer.writer.drain())
        data = b""
        async with asyncio.timeout(60):
            while b"\x82\x05after" not in data or not draining.done():
                data = data[-2_000_000:] + await peer.reader.read(65_536)


@pytest.mark.statement("N-15")
async def test_a_dialed_address_is_tried_again_and_again(tmp_path: Path) -> None:
    async with SubSocket(reconnect_min=0.01, reconnect_max=0.05) as sub:
        sub.subscribe(b"")
        target = url("ipc", tmp_path)
        await sub.dial(target)
        for n in range(3):
            async with PubSocket() as pub:
                await pub.listen(target)
                await pub.wait_for_peers(timeout=10)
                pub.send(b"%d" % n)
                assert await sub.recv(timeout=10) == b"%d" % n


async def test_one_subscriber_may_have_many_publishers(sub: SubSocket, tmp_path: Path) -> None:
    sub.subscribe(b"")
    pubs = [PubSocket() for _ in range(3)]
    for pub in pubs:
        await sub.dial(await pub.listen(url("tcp", tmp_path)))
    await sub.wait_for_peers(3, timeout=10)
    for n, pub in enumerate(pubs):
        await pub.wait_for_peers(timeout=10)
        pub.send(b"%d" % n)
    assert sorted(await receive(sub, 3)) == [b"0", b"1", b"2"]
    for pub in pubs:
        await pub.close()


async def test_a_socket_file_is_taken_over_only_from_a_dead_process(
    pub: PubSocket, tmp_path: Path
) -> None:
    target = url("ipc", tmp_path)
    path = target.removeprefix("ipc://")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    await pub.listen(target)
    async with PubSocket() as other:
        with pytest.raises(OSError, match="in use"):
            await other.listen(target)
        with pytest.raises(OSError, match="in use"):
            await other.listen(f"ipc://{__file__}")


@pytest.mark.parametrize(
    "wrong",
    [
        "udp://127.0.0.1:1",
        "tcp://127.0.0.1",
        "tcp://:1",
        "tcp://a:b",
        "tcp://a..b:1",
        f"tcp://{64 * 'a'}:1",
        "ws://127.0.0.1:1/feed#part",
        "ipc://",
        "ipc:///tmp/a\0b",
        "abstract://",
        "x",
        b"tcp://127.0.0.1:1",
        None,
    ],
)
async def test_a_wrong_url_is_refused(pub: PubSocket, wrong: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        await pub.listen(wrong)
    assert caught.value.field == "url"
    with pytest.raises(InvalidOption):
        await pub.dial(wrong)


async def test_encryption_is_asked_for_by_the_scheme(pub: PubSocket, tls: Tls) -> None:
    with pytest.raises(InvalidOption, match="needs a TLS context"):
        await pub.listen("tls+tcp://127.0.0.1:0")
    with pytest.raises(InvalidOption, match="does not use a TLS context"):
        await pub.listen("tcp://127.0.0.1:0", tls.server)
    with pytest.raises(InvalidOption, match="does not use a TLS context"):
        await pub.dial("tcp://127.0.0.1:1", tls.client)
    always: Any = True
    for url_of in (pub.listen, pub.dial):
        with pytest.raises(InvalidOption, match=r"bool, not an ssl\.SSLContext"):
            await url_of("tls+tcp://127.0.0.1:1", always)


async def test_only_a_listening_socket_may_leave_its_port_to_the_system(pub: PubSocket) -> None:
    with pytest.raises(InvalidOption, match="port 0, which only `listen` accepts") as caught:
        await pub.dial("tcp://127.0.0.1:0")
    assert caught.value.field == "url"


async def test_waiting_for_peers_says_why_there_are_none(pub: PubSocket, sub: SubSocket) -> None:
    port = free_port()
    await sub.dial(f"tcp://127.0.0.1:{port}")
    await until(lambda: all(each.problem for each in sub._dialers))
    with pytest.raises(OperationTimeout, match=rf"tcp://127\.0\.0\.1:{port}: no program"):
        await sub.wait_for_peers(timeout=0.01)
    async with PubSocket(reconnect_min=0.01) as other:
        await other.dial(await pub.listen("tcp://127.0.0.1:0"))
        await until(lambda: "bad_hello" in other.stats.refused)
        with pytest.raises(OperationTimeout, match=r"Refused: bad_hello \(\d+\)\."):
            await other.wait_for_peers(timeout=0.01)


async def test_text_is_no_message_and_no_prefix(pub: PubSocket, sub: SubSocket) -> None:
    text: Any = "text"
    with pytest.raises(InvalidPayload, match="The message is str; SP carries bytes") as caught:
        pub.send(text)
    assert caught.value.field == "body"
    for call in (sub.subscribe, sub.unsubscribe):
        with pytest.raises(InvalidOption, match="The prefix is str, not bytes"):
            call(text)


@pytest.mark.parametrize(
    "options",
    [
        {"send_queue_size": 0},
        {"send_queue_size": "16"},
        {"hello_timeout": 0},
        {"hello_timeout": None},
        {"reconnect_min": "1"},
        {"reconnect_max": 0.01},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        PubSocket(**options)
    assert caught.value.field in options
    with pytest.raises(InvalidOption):
        SubSocket(recv_queue_size=0)


@pytest.mark.statement("N-11", "N-36")
def test_one_search_finds_the_prefix_among_any_number() -> None:
    prefixes = Prefixes()
    wanted = {b"%d" % (n * 37 % 4001) for n in range(400)} | {b"\xff\x00", b"\xff\x00\x01"}
    for prefix in wanted:
        prefixes.add(prefix)
    bodies = [b"%d" % n for n in range(0, 40010, 7)] + [b"\xff", b"\xff\x00", b"\xff\x00z", b""]
    for body in bodies:
        assert prefixes.match(body) == any(body.startswith(prefix) for prefix in wanted)
    assert prefixes.select(bodies) == [body for body in bodies if prefixes.match(body)]
    for prefix in wanted:
        prefixes.remove(prefix)
    assert not any(map(prefixes.match, bodies))


@pytest.mark.statement("N-38")
def test_everything_public_is_documented() -> None:
    for name in sp.__all__:
        thing = getattr(sp, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for member, value in inspect.getmembers(thing):
                if not member.startswith("_") and inspect.isroutine(value):
                    assert inspect.getdoc(value), f"{name}.{member}"
