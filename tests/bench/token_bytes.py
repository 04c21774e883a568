"""Bytes that a reader of a token stream receives, for each token of the model."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import websockets

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.streams import stream_writer
from pubsub_server.auth.dev_tokens import load_key, mint
from tests.bench.servers import real_server
from tests.bench.tables import measured, table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.bench.processes import Json

ANSWERS: Final = ((50, 0), (50, 40), (150, 40))
"""Tokens per second of the model, and the window of the writer in milliseconds."""
WORDS: Final = ("A ", "topic ", "is ", "a ", "name ", "that ", "many ", "listen ", "to. ")


def measure(*, quick: bool) -> Json:
    tokens = 100 if quick else 600
    with tempfile.TemporaryDirectory() as folder:
        key_file = Path(folder) / "dev.key"
        token = mint(load_key(key_file), "answers", kind="service")
        with real_server(dev_key_file=key_file) as server:
            rows = [
                asyncio.run(_answer(server.ws, server.http, token, tokens, *each))
                for each in ANSWERS
            ]
    text = sum(len(WORDS[n % len(WORDS)]) for n in range(tokens)) / tokens
    return {"tokens": tokens, "text": text, "rows": rows}


def render(room: Json) -> str:
    rows = [
        [
            str(row["rate"]),
            f"{row['window']} ms" if row["window"] else "none",
            f"{row['messages']:.2f}",
            f"{row['socket']:.0f}",
            f"{row['event_stream']:.0f}",
        ]
        for row in room["rows"]
    ]
    return (
        "### Bytes of token streams\n\n"
        f"What one reader receives for an answer of {room['tokens']} tokens with "
        f"{room['text']:.1f} bytes of text each, snapshots and the end included, divided by the "
        f"tokens: `python -m tests.bench token-bytes`.{measured(room)}\n\n"
        + table(
            [
                "tokens per second of the model",
                "window of the writer",
                "messages per token",
                "bytes per token, WebSocket",
                "bytes per token, event stream",
            ],
            rows,
        )
    )


async def _answer(ws: str, http: str, token: str, tokens: int, rate: int, window: int) -> Json:
    """Write an answer with one reader of each kind, and count what they receive."""
    topic = f"demo.bytes.{rate}.{window}"
    async with (
        _reading(_socket(ws, token, topic)) as socket,
        _reading(_event_stream(http, token, topic)) as events,
        PubSubClient(ws, token, rest_url=http) as ps,
    ):
        async with stream_writer(ps, topic, window=window / 1000, listen=False) as writer:
            due = time.perf_counter()
            for number in range(tokens):
                due += 1 / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                await writer.write(WORDS[number % len(WORDS)])
        sizes = [await reader for reader in (socket, events)]
    return {
        "rate": rate,
        "window": window,
        "messages": len(sizes[0]) / tokens,
        "socket": sum(sizes[0]) / tokens,
        "event_stream": sum(sizes[1]) / tokens,
    }


@asynccontextmanager
async def _reading(frames: AsyncGenerator[str]) -> AsyncGenerator[asyncio.Task[list[int]]]:
    """Count the bytes of each frame after the first one, up to the end of the answer."""
    await anext(frames)

    async def count() -> list[int]:
        sizes: list[int] = []
        async for frame in frames:
            sizes.append(len(frame.encode()))
            if '"type":"message.complete"' in frame:
                break
        return sizes

    task = asyncio.create_task(count())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        await frames.aclose()


async def _socket(url: str, token: str, topic: str) -> AsyncGenerator[str]:
    """Yield the answer to the subscription, then messages, with 4 bytes for their headers."""
    async with websockets.connect(url, compression=None) as socket:
        await socket.send(json.dumps({"type": "auth", "token": token}))
        await socket.recv()
        await socket.send(json.dumps({"type": "subscribe", "topics": [topic], "presence": False}))
        async for frame in socket:
            yield f"head{frame!s}"


async def _event_stream(url: str, token: str, topic: str) -> AsyncGenerator[str]:
    """Yield the answer to the subscription, then events, with the lines that surround them."""
    query = {"topics": topic, "presence": "false"}
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(timeout=None, trust_env=False) as http,
        http.stream("GET", f"{url}/v1/subscribe", params=query, headers=headers) as answer,
    ):
        rest = ""
        async for piece in answer.aiter_text():
            *events, rest = (rest + piece).split("\n\n")
            for event in events:
                yield f"{event}\n\n"
