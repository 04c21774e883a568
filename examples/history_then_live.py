"""Read the history, then live messages, without a gap or a duplicate between them."""

from __future__ import annotations

import asyncio

from hanzoai.pubsub import PubSubClient

TOPIC = "demo.chat"


async def say(ps: PubSubClient, *lines: str) -> None:
    for line in lines:
        await ps.publish(TOPIC, {"type": "line", "data": line})


async def main() -> None:
    async with PubSubClient() as ps:
        await say(ps, "one", "two", "three")

        # Joining late: at most ten of the newest messages, then the live ones.
        chat = ps.subscribe(TOPIC, history=10)
        saying = asyncio.create_task(say(ps, "four", "five"))
        async for message in chat:
            print(message.data, flush=True)
            if message.data == "five":
                break
        await saying

        # Reading back without subscribing, page by page.
        newest = [message.data async for message in ps.history(TOPIC, limit=2)]
        print("the newest:", *newest)


if __name__ == "__main__":
    asyncio.run(main())
