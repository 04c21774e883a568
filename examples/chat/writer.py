"""The service that answers: a process without state, so that it can be killed at any moment.

Everything it needs is on the server: the questions in the history of the room, and the answers so
far in the history of their topics. A new process takes over unfinished answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

from examples.chat.script import STEERS, next_piece
from examples.chat.topics import ROOM, answer_topic
from hanzoai.pubsub import Conflict, Message, PubSubClient, PubSubError
from hanzoai.pubsub.streams import stream_writer

RATE: Final = 35.0
"""Words per second; the speed of a fast model."""
AT_ONCE: Final = 8
"""Maximum answers written at the same time; further questions wait."""


async def answer(ps: PubSubClient, question: Message, rate: float) -> None:
    """Answer a question, or continue the answer of a process that ended."""
    text = str(question.data["text"])
    wishes: list[tuple[str, str]] = []

    def steer(data: Any, by: str) -> None:
        if data in STEERS:
            wishes.append((data, by))

    topic = answer_topic(question.id)
    writer = stream_writer(ps, topic, id=question.id, take_over=True, on_steer=steer)
    try:
        async with writer:
            while True:
                piece = next_piece(text, writer.parts)
                continues = isinstance(piece, dict) and "type" not in piece
                if wishes and not continues:
                    wish, by = wishes.pop(0)
                    await writer.write({"type": "steer", "text": wish, "by": by})
                    continue
                if piece is None:
                    return
                await writer.write(piece)
                await asyncio.sleep(1 / rate)
    except Conflict:
        pass  # The answer is complete, or another process writes it.
    except PubSubError as error:
        print(f"the answer to {question.id} ended: {error}", file=sys.stderr, flush=True)


async def serve(rate: float) -> None:
    """Answer every question of the room, until standard input is closed."""
    places = asyncio.Semaphore(AT_ONCE)
    writing: set[str] = set()

    async def one(ps: PubSubClient, question: Message) -> None:
        async with places:
            writing.add(question.id)
            await appear(ps)
            try:
                await answer(ps, question, rate)
            finally:
                writing.discard(question.id)
                await appear(ps)

    async def appear(ps: PubSubClient) -> None:
        status = "writing" if writing else "ready"
        await ps.update_presence(ROOM, {"status": status, "pid": os.getpid()})

    async with (
        # Presence updates need a WebSocket; server-sent events cannot carry them.
        PubSubClient(transport="websocket") as ps,
        ps.subscribe(ROOM, history=100) as messages,
        asyncio.TaskGroup() as answers,
    ):
        await appear(ps)
        print("ready", flush=True)
        async for message in messages:
            if message.type == "question" and isinstance(message.data.get("text"), str):
                answers.create_task(one(ps, message))


async def _end_with_the_parent() -> None:
    """Return when standard input is closed, which happens when the parent ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def main() -> None:
    """Serve until the parent ends or interrupts this process."""
    serving = asyncio.create_task(serve(float(os.environ.get("CHAT_RATE", RATE))))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    ending = asyncio.create_task(_end_with_the_parent())
    await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    asyncio.run(main())
