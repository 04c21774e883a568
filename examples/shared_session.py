"""Two people in one session: each sees the other come, type and leave."""

from __future__ import annotations

import asyncio

from hanzoai.pubsub import PresenceChange, PubSubClient

TOPIC = "demo.session"


def show(change: PresenceChange) -> None:
    present = sorted(member.status or "here" for member in change.members)
    print(f"{change.change}: {len(present)} present, {', '.join(present)}", flush=True)
    seen.add((change.change, len(present), "typing" in present))
    news.set()


async def until(change: str, present: int, *, typing: bool = False) -> None:
    while (change, present, typing) not in seen:
        news.clear()
        await news.wait()


seen: set[tuple[str, int, bool]] = set()
news = asyncio.Event()


async def main() -> None:
    async with PubSubClient() as alice, alice.subscribe(TOPIC, on_presence=show):
        async with PubSubClient() as bob, bob.subscribe(TOPIC, on_message=print):
            await until("join", 2)
            await bob.update_presence(TOPIC, {"status": "typing"})
            await until("update", 2, typing=True)
        await until("leave", 1)


if __name__ == "__main__":
    asyncio.run(main())
