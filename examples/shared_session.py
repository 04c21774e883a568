"""Two users in one session: each sees when the other joins, types and leaves.

`SECOND_TOKEN` is the token of the second user. Without it, both connections belong to one user, who
is present while at least one is open: `connect` and `disconnect` replace `join` and `leave`.
"""

from __future__ import annotations

import asyncio
import os

from hanzoai.pubsub import PresenceChange, PubSubClient

TOPIC = "demo.session"


def show(change: PresenceChange) -> None:
    present = sorted(member.status or "here" for member in change.members)
    print(f"{change.change}: {len(present)} present, {', '.join(present)}", flush=True)
    seen.add((len(present), "typing" in present))
    news.set()


async def until(present: int, *, typing: bool = False) -> None:
    while (present, typing) not in seen:
        news.clear()
        await news.wait()


seen: set[tuple[int, bool]] = set()
news = asyncio.Event()


async def main() -> None:
    async with PubSubClient() as alice, alice.subscribe(TOPIC, on_presence=show):
        second = os.environ.get("SECOND_TOKEN")
        async with PubSubClient(token=second) as bob, bob.subscribe(TOPIC, on_message=print):
            await until(2)
            await bob.update_presence(TOPIC, {"status": "typing"})
            await until(2, typing=True)
            seen.clear()
        await until(1)


if __name__ == "__main__":
    asyncio.run(main())
