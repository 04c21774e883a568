"""Stream an answer: a service writes it token by token, and a reader prints it while it grows.

export HANZO_PUBSUB_URL=ws://127.0.0.1:8057/ws
export HANZO_PUBSUB_TOKEN=$(hanzo-pubsub token --user gateway --kind service)
python examples/stream_tokens.py
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.streams import Delta, StreamWriter, stream_reader, stream_writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOPIC = "demo.answer"
ANSWER = "A topic is a name that many may listen to and few may speak on."


async def model() -> AsyncIterator[str]:
    for word in ANSWER.split(" "):
        yield word + " "
        await asyncio.sleep(0.02)


async def speak(writer: StreamWriter) -> None:
    async with writer:
        await writer.pipe(model())


async def main() -> None:
    async with PubSubClient() as ps:
        writer = stream_writer(ps, TOPIC)
        speaking = asyncio.create_task(speak(writer))
        answer = stream_reader(ps, TOPIC, id=writer.id)
        async for event in answer:
            if isinstance(event, Delta):
                print(event.text, end="", flush=True)
        print()
        await speaking


if __name__ == "__main__":
    asyncio.run(main())
