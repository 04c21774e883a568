"""Token streams on a server with default limits: the first token, and many answers on one token."""

from __future__ import annotations

import asyncio
import re
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.streams import Delta, Snapshot, Started, stream_reader, stream_writer
from pubsub_server.auth.dev_tokens import load_key, mint
from tests.bench.processes import Json, percentile
from tests.bench.servers import Server, real_server
from tests.bench.tables import measured, met, table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RATE: Final = 150
"""Tokens per second of each answer."""
AT_ONCE: Final = {3: 40, 9: 100, 23: 250, 45: 500}
"""Concurrent answers, and the milliseconds between two updates that the rate limit allows each."""
TARGET: Final = 1.0
"""Maximum milliseconds that the first token may add to a bare publish, at the median."""
DEFAULTS: Final = {"publish_rate_user": 10, "publish_rate_service": 100}
PIECE: Final = re.compile(r".{1,3}", re.DOTALL)
TEXT: Final = (
    "Hello wörld \U0001f468\u200d\U0001f469\u200d\U0001f467 漢字 e\u0301 \U0001f3f3\ufe0f "
)

REJECTED: Final = re.compile(r'refused_total\{code="rate_limited"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """A server, and the tokens of the service that writes and of the readers."""

    server: Server
    writer: str
    reader: str

    def client(self, token: str) -> PubSubClient:
        return PubSubClient(self.server.ws, token, rest_url=self.server.http)


def measure(*, quick: bool) -> Json:
    times, seconds = (50, 2) if quick else (200, 8)
    with tempfile.TemporaryDirectory() as folder:
        key_file = Path(folder) / "dev.key"
        key = load_key(key_file)
        writer, reader = (mint(key, name, kind="service") for name in ("answers", "readers"))
        with real_server(dev_key_file=key_file, **DEFAULTS) as server:
            place = Place(server, writer, reader)
            first = asyncio.run(_first(place, times))
            answers = [
                asyncio.run(_answers(place, count, round(seconds * RATE))) for count in AT_ONCE
            ]
    return {"times": times, "seconds": seconds, "first": first, "answers": answers}


def render(room: Json) -> str:
    bare, stream, seconds = room["first"]["bare"], room["first"]["stream"], room["seconds"]
    added = stream["p50_ms"] - bare["p50_ms"]
    rows = [
        [
            str(found["answers"]),
            f"{found['update_ms']:.0f}",
            f"{found['rate_errors']:.0f}",
            "equal" if found["equal"] else "**different**",
        ]
        for found in room["answers"]
    ]
    firsts = [
        [name, f"{found['p50_ms']:.2f}", f"{found['p99_ms']:.2f}"]
        for name, found in (("bare publish", bare), ("first token of a stream", stream))
    ]
    return (
        "### Token streams\n\n"
        f"A server with default limits runs in one process, writers and readers in another. The "
        f"table shows the time from the call until the reader gets the event, {room['times']} "
        f"times in turns.{measured(room)}\n\n"
        + table(["", "p50, ms", "p99, ms"], firsts)
        + f"\n\nTarget: at most {TARGET:g} ms more at the median ({met(added <= TARGET)}: "
        f"{added:.2f}).\n\n"
        f"Answers of {RATE} tokens per second for {seconds} s, all with one service token, each "
        "with one reader. The text contains Chinese and emoji that consist of several characters, "
        "and tokens end in the middle of them.\n\n"
        + table(
            ["answers at once", "ms between updates (median)", "publishes rejected", "text"], rows
        )
    )


# ---------------------------------------------------------------- the first token


async def _first(place: Place, times: int) -> Json:
    bare: list[float] = []
    stream: list[float] = []
    async with place.client(place.writer) as ps, place.client(place.reader) as other:
        for n in range(times + 5):
            bare.append(await _bare(ps, other, f"demo.bare.{n}"))
            stream.append(await _token(ps, other, f"demo.first.{n}"))
            # A round takes four publishes, which stays within the rate limit.
            await asyncio.sleep(0.05)
    return {
        name: {
            "p50_ms": statistics.median(found[5:]) * 1000,
            "p99_ms": percentile(sorted(found[5:]), 0.99) * 1000,
        }
        for name, found in (("bare", bare), ("stream", stream))
    }


async def _bare(ps: PubSubClient, other: PubSubClient, topic: str) -> float:
    async with other.subscribe(topic) as messages:
        begin = time.perf_counter()
        publishing = asyncio.ensure_future(ps.publish(topic, {"type": "token", "data": "x"}))
        await anext(messages)
        took = time.perf_counter() - begin
        await publishing
    return took


async def _token(ps: PubSubClient, other: PubSubClient, topic: str) -> float:
    took = 0.0
    async with stream_reader(other, topic, id="r") as reader:
        async with stream_writer(ps, topic, id="r", listen=False) as writer:
            async for event in reader:
                if isinstance(event, Started):
                    break
            begin = time.perf_counter()
            await writer.write("x")
            async for event in reader:
                if isinstance(event, Delta | Snapshot):
                    break
            took = time.perf_counter() - begin
        await reader.final()
    return took


# ---------------------------------------------------------------- many answers


async def _answers(place: Place, count: int, tokens: int) -> Json:
    """Write answers with this number of tokens each, all at once."""
    text = (TEXT * (tokens * 3 // len(TEXT) + 1))[: tokens * 3]
    before = await _rejected(place)
    pauses: list[float] = []
    async with place.client(place.writer) as ps, place.client(place.reader) as other:

        async def write(topic: str) -> int:
            async with stream_writer(ps, topic) as writer:
                await writer.pipe(_model(text))
            return writer.stats["retries"]

        async def read(topic: str) -> bool:
            shown, last = "", time.perf_counter()
            reader = stream_reader(other, topic)
            async for event in reader:
                now = time.perf_counter()
                if isinstance(event, Delta):
                    shown += event.text
                    pauses.append(now - last)
                elif isinstance(event, Snapshot):
                    shown = event.text
                last = now
            return shown == text == (await reader.final()).text

        topics = [f"demo.answer.{count}.{n}" for n in range(count)]
        readers = asyncio.gather(*(read(topic) for topic in topics))
        retries = await asyncio.gather(*(write(topic) for topic in topics))
        equal = await readers
    return {
        "answers": count,
        "update_ms": statistics.median(pauses) * 1000,
        "rate_errors": await _rejected(place) - before,
        "retries": sum(retries),
        "equal": all(equal),
    }


async def _model(text: str) -> AsyncIterator[str]:
    due = time.perf_counter()
    for piece in PIECE.findall(text):
        due += 1 / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        yield piece


async def _rejected(place: Place) -> float:
    """Requests that the server has rejected because of the rate limit."""
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{place.server.http}/metrics")
    found = re.search(
        r'^hanzo_pubsub_refused_total\{code="rate_limited"\} (\S+)$', answer.text, re.M
    )
    return float(found[1]) if found else 0.0
