from __future__ import annotations

import asyncio
import contextlib
import itertools
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanzoai.pubsub.generated.wire import (
    MessageFrame,
    PresenceSnapshotFrame,
    ServerFrame,
    SubscribeFrame,
)
from hanzoai.pubsub.http.connection import make_client
from hanzoai.pubsub.settings.options import read_options
from hanzoai.pubsub.transports.event_stream import StreamRequest, open_stream
from tests.python.sse.rig import Client, Peer, Stream, envelope, event, message, numbers, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.transports import TransportClosed

BODY = (
    'data: {"id":"m1","topic":"a.b","type":"t",\n'
    'id: 1-a.b@1\ndata:"data":"gr\u00fc\u00df \U0001f600\u2028 \u0085 x","timestamp":1}\n\n'
    "retry: 2500\n\n"
    ": keepalive\n\n"
    "unknown: field\nevent: surprise\ndata: {}\n\n"
    'data: {"id":"m2","topic":"a.b","type":"t","data":null,"timestamp":2}\n\n'
    ": keepalive\n\n"
    "event: message\ndata: {broken\n\n"
    "event: message\n\n"
    'event: presence\ndata: {"topic":"a.b","members":[{"id":"u"}]}\n\n'
    'event: message\ndata: {"id":"m3","topic":"a.b","type":"t","data":3,"timestamp":3}\n\n'
)


async def read_body(chunks: list[bytes]) -> tuple[list[ServerFrame], TransportClosed]:
    client = Client(Peer())
    await client.open()
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(*chunks)
    stream.end()
    closed = await client.closed()
    await client.transport.close()
    return client.came, closed


def check_body(frames: list[ServerFrame], closed: TransportClosed) -> None:
    assert numbers(frames) == [1, 2, 3]
    assert isinstance(frames[0], MessageFrame)
    assert frames[0].message.data == "gr\u00fc\u00df \U0001f600\u2028 \u0085 x"
    assert isinstance(frames[2], PresenceSnapshotFrame)
    assert (closed.code, closed.retry_after) == (None, 2.5)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "BOM"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
async def test_chunks_may_be_cut_anywhere(end: str, mark: str, size: int) -> None:
    data = (mark + BODY).replace("\n", end).encode()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    check_body(*await read_body(chunks))


@pytest.mark.parametrize("size", [1, 2, 3, 10_000])
async def test_an_empty_line_may_end_otherwise_than_the_line_before(size: int) -> None:
    data = BODY.replace("\n\n", "\r\n\n").encode()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    check_body(*await read_body(chunks))


@given(st.lists(st.integers(0, len(BODY.encode())), max_size=8), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=50, deadline=None)
def test_chunks_may_be_cut_at_random(cuts: list[int], end: str) -> None:
    data = BODY.replace("\n", end).encode()
    places = [0, *sorted(cuts), len(data)]
    chunks = [data[start:stop] for start, stop in itertools.pairwise(places)]
    check_body(*asyncio.run(read_body(chunks)))


async def test_an_event_that_ends_in_carriage_returns_is_not_held_back(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(message(1).replace(b"\n", b"\r"))
    assert numbers(await client.next()) == [1]


async def test_comments_count_as_received(client: Client, peer: Peer) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(message(1))
    await client.next()
    client.clock.time = 500.0
    stream.write(b": keepalive\n\n")
    await until(lambda: stream.taken >= 2)
    assert client.transport.last_received == 500.0


async def test_an_event_over_the_limit_ends_the_transport(peer: Peer) -> None:
    client = Client(peer, max_frame=2_000)
    await client.open()
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    for number in range(20):
        stream.write(event("message", envelope(number)))
    stream.write(*[b": keepalive\n\n"] * 200, message(20))
    assert numbers(await client.next(21)) == list(range(21))
    stream.write(b"data: ", *[b"x" * 500] * 5)
    assert (await client.closed()).code == 1009
    await client.transport.close()


@pytest.mark.parametrize("size", [1, 700, 10_000])
async def test_events_that_arrive_together_are_limited_one_by_one(peer: Peer, size: int) -> None:
    client = Client(peer, max_frame=1_024)
    await client.open()
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    data = b"".join(message(number, meta={"x": "y" * 700}) for number in range(10))
    stream.write(*(data[at : at + size] for at in range(0, len(data), size)))
    assert numbers(await client.next(10)) == list(range(10))
    stream.write(message(10) + b"data: " + b"x" * 1_100 + b"\n\n")
    closed = await client.closed()
    assert (closed.code, closed.reason) == (1009, "An event has more than 1,024 bytes.")
    await client.transport.close()


@pytest.mark.parametrize("milliseconds", ["9" * 400, "86400000"])
async def test_the_wait_before_the_next_stream_is_limited(milliseconds: str) -> None:
    _, closed = await read_body([b"retry: %s\n\n" % milliseconds.encode()])
    assert (closed.reason, closed.retry_after) == ("The server ended the event stream.", 3_600)


async def test_an_event_stream_without_a_reader_is_not_read_further(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    client.transport.pause()
    for number in range(1_000):
        stream.write(message(number))
    await until(lambda: stream.taken >= 250)
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert stream.taken < 300
    client.transport.resume()
    assert numbers(await client.next(1_000)) == list(range(1_000))


async def test_an_event_with_only_an_id_and_a_comment_is_not_a_message(
    client: Client, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    for chunk in (b"id: 7-a.b@7\n: keepalive\n\n", b": x\nid: 8\n\n", b"event: message\n\n"):
        stream.queue.put_nowait(chunk)
    stream.queue.put_nowait(message(9))
    (frame,) = await client.next()
    assert numbers([frame]) == [9]
    assert "left out" not in caplog.text


def bomb(megabytes: int, start: bytes = b"") -> bytes:
    """Return many equal bytes compressed by gzip, to a thousandth of their size."""
    made = zlib.compressobj(9, wbits=31)
    packed = made.compress(start)
    for _ in range(megabytes):
        packed += made.compress(b"x" * (1 << 20))
    return packed + made.flush()


def compressed_stream(streams: list[Stream], encoding: str) -> Callable[..., httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        streams.append(Stream(request))
        headers = {"Content-Type": "text/event-stream", "Content-Encoding": encoding}
        return httpx.Response(200, headers=headers, stream=streams[-1])

    return answer


async def test_a_compressed_stream_is_read(client: Client, peer: Peer) -> None:
    await client.authenticate()
    streams: list[Stream] = []
    peer.answer("/v1/subscribe", compressed_stream(streams, "gzip"))
    client.send(SubscribeFrame(topics=["a.b"]))
    await until(lambda: streams)
    packer = zlib.compressobj(wbits=31)
    for number in (1, 2):
        streams[0].write(packer.compress(message(number)) + packer.flush(zlib.Z_SYNC_FLUSH))
    assert numbers(await client.next(2)) == [1, 2]


async def test_the_decompressed_size_of_an_event_is_limited(peer: Peer) -> None:
    client = Client(peer, max_frame=1 << 20)
    await client.open()
    await client.authenticate()
    streams: list[Stream] = []
    peer.answer("/v1/subscribe", compressed_stream(streams, "gzip"))
    client.send(SubscribeFrame(topics=["a.b"]))
    await until(lambda: streams)
    packed = bomb(200, b"event: message\ndata: ")
    tracemalloc.start()
    try:
        streams[0].write(packed)
        closed = await client.closed()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (closed.code, closed.reason) == (1009, "An event has more than 1,048,576 bytes.")
    assert most < 16 << 20
    await client.transport.close()


async def test_an_encoding_that_was_not_requested_ends_the_stream_and_is_named(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    streams: list[Stream] = []
    peer.answer("/v1/subscribe", compressed_stream(streams, "br"))
    client.send(SubscribeFrame(topics=["a.b"]))
    await until(lambda: streams)
    streams[0].write(b"\x0b\x02\x80")
    assert "compressed as `br`" in (await client.closed()).reason


HEADS = {
    "headers": b"X-Filler: " + b"y" * 100 + b"\r\n",
    "one header": b"y" * 100,
    "heads before the answer": b"HTTP/1.1 103 Early Hints\r\n\r\n",
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("pause", [0.0, 0.02], ids=["at once", "slowly"])
async def test_a_head_without_an_end_is_given_up(name: str, pause: float) -> None:
    over, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(b"" if name.startswith("heads") else b"HTTP/1.1 200 OK\r\n")
            if name == "one header":
                writer.write(b"X-Filler: ")
            while not over.is_set():
                writer.write(HEADS[name])
                await writer.drain()
                await asyncio.sleep(pause)
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    options = read_options(url, "token", settings={"open_timeout": 0.3}, environ={})
    client = make_client(options)
    async with asyncio.timeout(60):
        with pytest.raises(httpx.HTTPError):
            async with open_stream(
                client,
                StreamRequest("GET"),
                "token",
                received=lambda: None,
                connect_timeout=options.open_timeout,
                limit=options.max_frame,
            ):
                pytest.fail("it was opened")
        await client.aclose()
        over.set()
        await ended.wait()
    server.close()
