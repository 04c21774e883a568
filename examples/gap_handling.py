"""Handle a gap: if messages are no longer available, load the state again.

The program starts at an old position that the server no longer retains, as after a night offline.
"""

from __future__ import annotations

import asyncio

from hanzoai.pubsub import Gap, Message, PubSubClient

TOPIC = "demo.counter"


async def main() -> None:
    async with PubSubClient() as ps:
        counts = range(1, 21)
        published = [
            await ps.publish(TOPIC, {"type": "count", "data": {"value": n}}) for n in counts
        ]
        last_seen = published[0].seq or 0
        async with ps.subscribe(TOPIC, after={TOPIC: last_seen}) as sub:
            async for event in sub.events():
                if isinstance(event, Gap):
                    print(f"missed {event.missed} ({event.reason}): loading the counter again")
                elif isinstance(event, Message):
                    print(f"counter is {event.data['value']}")
                    if event.data["value"] == counts[-1]:
                        break


if __name__ == "__main__":
    asyncio.run(main())
