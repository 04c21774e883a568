"""Publish many messages in one request, in order. Each has its own result."""

from __future__ import annotations

import asyncio

from hanzoai.pubsub import PubSubClient, PubSubError

TOPIC = "demo.progress"


async def main() -> None:
    async with PubSubClient() as ps:
        steps = [(TOPIC, {"type": "progress", "data": {"percent": p}}) for p in (0, 25, 50)]
        for result in await ps.publish_many(steps):
            if isinstance(result, PubSubError):
                print(f"rejected: {result.code}. {result.remedy}")
            else:
                print(f"published {result.id}")

        async with ps.batch() as batch:  # sent together when the block ends
            batch.publish(TOPIC, {"type": "progress", "data": {"percent": 75}})
            batch.publish(TOPIC, {"type": "progress", "data": {"percent": 100}})
        print(f"and {len(batch.results)} more")


if __name__ == "__main__":
    asyncio.run(main())
