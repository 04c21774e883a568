"""Connections receive into one buffer per thread."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.links.connections import Link, Target
from hanzoai.pubsub.network.receiving import BufferedReads
from hanzoai.pubsub.sp import PubSocket, SubSocket
from tests.python.test_blocking import forks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

BOUND = 60
READ_OF_ASYNCIO = 256 * 1024
"""Bytes that asyncio allocates for a read without a buffer."""


class Reads(BufferedReads):
    """Collects what it receives."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.received.append(data)


async def most_taken(read: Callable[[], Awaitable[object]]) -> int:
    """Return the most bytes that were allocated at a time while something was read."""
    tracemalloc.start()
    try:
        await read()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return most


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_a_read_of_a_byte_protocol_takes_no_more_memory_than_its_bytes(
    kind: str, tmp_path: Path
) -> None:
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.put_nowait(writer)

    path = str(tmp_path / "s")
    async with asyncio.timeout(BOUND), AsyncExitStack() as stack:
        if kind == "unix":
            server = await stack.enter_async_context(await asyncio.start_unix_server(accept, path))
            target = Target(path=path)
        else:
            server = await stack.enter_async_context(
                await asyncio.start_server(accept, "127.0.0.1", 0)
            )
            target = Target("127.0.0.1", server.sockets[0].getsockname()[1])
        link = await Link.open(target, None, BOUND)
        writer = await accepted.get()
        reading = asyncio.ensure_future(link.read())
        writer.write(b"small")
        assert await most_taken(lambda: reading) < READ_OF_ASYNCIO
        assert await reading == b"small"
        await link.close()
        writer.close()


async def test_a_read_of_an_sp_socket_takes_no_more_memory_than_its_bytes() -> None:
    async with asyncio.timeout(BOUND), PubSocket() as pub, SubSocket() as sub:
        sub.subscribe(b"")
        await sub.dial(str(await pub.listen("tcp://127.0.0.1:0")))
        while not pub.stats.peers:  # noqa: ASYNC110 - the socket has no event for it
            await asyncio.sleep(0)
        reading = asyncio.ensure_future(sub.recv())
        await pub.send(b"small")
        assert await most_taken(lambda: reading) < READ_OF_ASYNCIO
        assert await reading == b"small"


async def test_a_slow_program_gets_all_bytes_in_order_after_reading_was_paused() -> None:
    data = os.urandom(4 << 20)
    paused = asyncio.Event()

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if writer.transport.get_write_buffer_size():
            paused.set()
        await writer.drain()
        writer.close()

    async with (
        asyncio.timeout(BOUND),
        await asyncio.start_server(flood, "127.0.0.1", 0) as server,
    ):
        target = Target("127.0.0.1", server.sockets[0].getsockname()[1])
        link = await Link.open(target, None, BOUND)
        await paused.wait()
        found = b""
        while part := await link.read():
            found += part
        assert found == data
        await link.close()


def test_loops_in_two_threads_do_not_share_a_buffer() -> None:
    here, there = Reads(), Reads()
    here.get_buffer(-1)[:1] = b"a"

    def read() -> None:
        there.get_buffer(-1)[:1] = b"b"
        there.buffer_updated(1)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    here.buffer_updated(1)
    assert (here.received, there.received) == ([b"a"], [b"b"])


@forks
def test_a_forked_process_does_not_share_the_buffer_of_its_parent() -> None:
    program = """
        import os
        from hanzoai.pubsub.network.receiving import BufferedReads
        class Reads(BufferedReads):
            def data_received(self, data):
                print(data.decode())
        reads = Reads()
        buffer = reads.get_buffer(-1)
        buffer[:1] = b"a"
        if not os.fork():
            buffer[:1] = b"b"
            os._exit(0)
        os.wait()
        reads.buffer_updated(1)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        check=True,
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert done.stdout == "a\n"
