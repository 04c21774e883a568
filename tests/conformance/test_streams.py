"""Streams between both languages on a real server, and on one that implements only HIP-56.

The server has its default settings: 100 publishes per second for a service, 100 retained messages.
Set HANZO_PUBSUB_SOAK for more and longer answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pytest

from hanzoai.pubsub import PubSubClient, RetryOptions
from hanzoai.pubsub.streams import Delta, Snapshot, StreamReader, stream_reader, stream_writer
from pubsub_server.testing import RunningServer, running_server
from tests.interop.plain_server import PlainServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

ROOT: Final = Path(__file__).parents[2]
SOAK: Final = "HANZO_PUBSUB_SOAK" in os.environ
ANSWERS: Final = 45 if SOAK else 9
TEXT: Final = (
    "Hello wörld \U0001f468\u200d\U0001f469\u200d\U0001f467 漢字 e\u0301 \U0001f3f3\ufe0f "
    * (200 if SOAK else 20)
)

WRITER: Final = """
import asyncio, sys
from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.streams import stream_writer

async def main(url, rest, token, topic, text):
    async with PubSubClient(url, token, rest_url=rest) as ps:
        async with stream_writer(ps, topic, id="r1") as writer:
            for at in range(0, len(text) // 2, 3):
                await writer.write(text[at : at + 3])
                await asyncio.sleep(1 / 150)
                print(at, flush=True)
            await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


def words(text: str) -> Iterator[str]:
    for at in range(0, len(text), 3):
        yield text[at : at + 3]


async def model(text: str) -> AsyncIterator[str]:
    for word in words(text):
        await asyncio.sleep(1 / 150)
        yield word


@asynccontextmanager
async def started() -> AsyncGenerator[RunningServer]:
    async with running_server() as server:
        yield server


def client(server: RunningServer, token: str | None = None) -> PubSubClient:
    return PubSubClient(server.ws, token or server.service_token(), rest_url=server.http)


async def shown(reader: StreamReader) -> str:
    """Return the final text of a program that uses only deltas and snapshots."""
    text = ""
    async for event in reader:
        if isinstance(event, Delta):
            text += event.text
        elif isinstance(event, Snapshot):
            text = event.text
        assert reader.stale or TEXT.startswith(reader.text)
    return text


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    """The bundled TypeScript program."""
    cache = ROOT / "node_modules" / ".cache"
    cache.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=cache) as folder:
        target = Path(folder) / "stream.mjs"
        esbuild = ROOT / "node_modules" / ".bin" / "esbuild"
        peer = "tests/conformance/peers/stream.ts"
        options = ("--bundle", "--format=esm", "--platform=node", "--packages=external")
        subprocess.run(
            [esbuild, peer, *options, "--log-level=warning", f"--outfile={target}"],
            cwd=ROOT,
            check=True,
            timeout=120,
        )
        yield target


async def node(program: Path, role: str, server: RunningServer, topic: str, text: str = "") -> Any:
    """Run the TypeScript program; return its output."""
    process = await asyncio.create_subprocess_exec(
        *("node", program, role, server.ws, server.http, server.service_token("ts"), topic, "r1"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(text.encode())
    assert process.returncode == 0
    return json.loads(out)


async def test_answers_share_one_token_while_readers_come_and_are_cut() -> None:
    rng = random.Random(15)
    async with started() as server, client(server) as ps:

        async def write(topic: str) -> int:
            async with stream_writer(ps, topic) as writer:
                await writer.pipe(model(TEXT))
            return writer.stats["retries"]

        async def read(topic: str) -> str:
            await asyncio.sleep(rng.uniform(0, len(TEXT) / 450))
            retry = RetryOptions(base=0.02, cap=0.1)
            token = server.service_token("reader")
            async with PubSubClient(server.ws, token, rest_url=server.http, retry=retry) as own:
                reader = stream_reader(own, topic)
                text = await shown(reader)
                assert (await reader.final()).text == TEXT
            return text

        topics = [f"demo.answer.{n}" for n in range(ANSWERS)]
        writing = asyncio.gather(*(write(topic) for topic in topics))
        reading = asyncio.gather(*(read(topic) for topic in topics for _ in range(2)))
        async with asyncio.timeout(60):
            assert await writing == [0] * ANSWERS
            assert await reading == [TEXT] * ANSWERS * 2


async def test_each_language_reads_what_the_other_writes(program: Path) -> None:
    async with started() as server, client(server) as ps:
        topic, other = "demo.python", "demo.typescript"
        ours = stream_reader(ps, other, id="r1")
        reading = asyncio.gather(shown(ours), node(program, "read", server, topic))
        writing = asyncio.create_task(node(program, "write", server, other, TEXT))
        async with asyncio.timeout(60):
            async with stream_writer(ps, topic, id="r1") as writer:
                await writer.pipe(model(TEXT))
            text, theirs = await reading
            assert (await writing)["retries"] == 0
        assert text == TEXT
        assert (theirs["kind"], theirs["text"], theirs["shown"]) == ("done", TEXT, TEXT)


async def test_a_reader_in_the_other_language_cancels(program: Path) -> None:
    async with started() as server, client(server) as ps:
        topic = "demo.cancelled"
        reading = asyncio.create_task(node(program, "cancel", server, topic))
        async with asyncio.timeout(60):
            async with stream_writer(ps, topic, id="r1") as writer:
                while True:
                    await writer.write("text ")
                    await asyncio.sleep(0.01)
            theirs = await reading
        final = await stream_reader(ps, topic, id="r1").final()
        assert (theirs["kind"], theirs["reason"], theirs["by"]) == ("aborted", "enough", "ts")
        assert theirs["text"] == theirs["shown"] == final.text


async def test_a_writer_that_is_killed_is_taken_over() -> None:
    async with started() as server, client(server) as ps:
        topic = "demo.killed"
        reader = stream_reader(ps, topic, id="r1")
        reading = asyncio.create_task(shown(reader))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WRITER, server.ws, server.http, server.service_token("w")),
            *(topic, TEXT),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while int(await process.stdout.readline()) < len(TEXT) // 3:
                pass
            process.send_signal(signal.SIGKILL)
            await process.wait()
            async with (
                client(server, server.service_token("w")) as next_one,
                stream_writer(next_one, topic, id="r1", take_over=True) as writer,
            ):
                assert 0 < len(writer.text) < len(TEXT)
                await writer.pipe(model(TEXT[len(writer.text) :]))
            assert await reading == TEXT
        assert (await reader.final()).text == TEXT


@pytest.mark.parametrize("cuts", [0, 3])
async def test_a_server_that_implements_only_hip_56_is_enough(cuts: int) -> None:
    async with PlainServer(history=100) as server:

        async def age() -> None:
            while True:
                await asyncio.sleep(0.001)
                server.now += 1

        async def cutting() -> AsyncIterator[str]:
            every, count = len(TEXT) // 3 // (cuts + 1), 0
            async for word in model(TEXT):
                yield word
                count += 1
                if count % every == 0 and count // every <= cuts:
                    server.cut()

        aging = asyncio.create_task(age())
        retry = RetryOptions(base=0.02, cap=0.05)
        options: Any = {"transport": "websocket", "retry": retry}
        async with (
            PubSubClient(server.url, "Bearer t", **options) as ps,
            PubSubClient(server.url, "Bearer t", **options) as other,
            asyncio.timeout(60),
        ):
            topic = "chat.session.plain"
            reader = stream_reader(other, topic, id="r1")
            reading = asyncio.create_task(shown(reader))
            async with stream_writer(ps, topic, id="r1") as writer:
                await writer.pipe(cutting())
            assert await reading == TEXT
        aging.cancel()
