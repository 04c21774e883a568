"""Stream an answer: a service publishes its tokens, a reader prints them as they come.

export HANZO_PUBSUB_URL=ws://127.0.0.1:8057/ws
export HANZO_PUBSUB_TOKEN=$(hanzo-pubsub token --user gateway --kind service)
python examples/stream_tokens.py
"""

from __future__ import annotations

import asyncio

from hanzoai.pubsub import PubSubClient

TOPIC = "demo.answer"
ANSWER = "A topic is a name that many may listen to and few may speak on."


async def speak(ps: PubSubClient) -> None:
    for index, word in enumerate(ANSWER.split(" ")):
        data = {"content": word + " ", "index": index}
        await ps.publish(TOPIC, {"type": "token", "data": data})
    await ps.publish(TOPIC, {"type": "message.complete", "data": {"content": ANSWER}})


async def main() -> None:
    async with PubSubClient() as ps, ps.subscribe(TOPIC) as answer:
        speaking = asyncio.create_task(speak(ps))
        async for message in answer:
            if message.type == "message.complete":
                break
            print(message.data["content"], end="", flush=True)
        print()
        await speaking


if __name__ == "__main__":
    asyncio.run(main())
