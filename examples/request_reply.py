"""A request over a topic and its reply, with an error that the responder chooses."""

from __future__ import annotations

import asyncio

from hanzoai.pubsub import Message, PubSubClient, ReplyError

TOPIC = "demo.prices"
PRICES = {"apple": 120, "pear": 90}


async def price(request: Message) -> int:
    name = request.data["name"]
    if name not in PRICES:
        raise ReplyError(f"There is no {name}.", code="unknown_product")
    return PRICES[name]


async def main() -> None:
    async with PubSubClient() as ps, ps.respond(TOPIC, price):
        reply = await ps.request(TOPIC, {"name": "apple"}, timeout=5)
        print(f"an apple costs {reply.data}")
        try:
            await ps.request(TOPIC, {"name": "moon"}, timeout=5)
        except ReplyError as error:
            print(f"{error.code}: {error.message}")


if __name__ == "__main__":
    asyncio.run(main())
