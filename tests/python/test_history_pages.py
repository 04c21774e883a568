"""Random requests for history, compared with the selection from the whole log."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.errors import Conflict
from hanzoai.pubsub.testing import MemoryServer

if TYPE_CHECKING:
    from hanzoai.pubsub import Message, PubSubClient

TOPIC = "demo.pages"
SEQ_MAX = 2**53 - 1


async def read(ps: PubSubClient, **options: Any) -> list[Message]:
    return [message async for message in ps.history(TOPIC, **options)]


def seq(message: Message) -> int:
    assert message.seq is not None
    return message.seq


def choose(rng: random.Random, log: list[Message]) -> tuple[dict[str, Any], list[Message]]:
    """Options, and the messages that they select."""
    first, last, one = seq(log[0]), seq(log[-1]), rng.choice(log)
    options: dict[str, Any] = {}
    chosen = log
    ends = (0, first - 1, first, last, last + 1, SEQ_MAX, rng.randint(first, last))
    match rng.choice(("all", "message", "position", "after", "since")):
        case "message":
            options, chosen = {"before": one}, [m for m in log if seq(m) < seq(one)]
        case "position":
            end = rng.choice(ends)
            options, chosen = {"before": end}, [m for m in log if seq(m) < end]
        case "after":
            start = rng.choice(ends)
            # A position that the log has not reached belongs to an earlier log.
            options = {"after": start}
            chosen = [m for m in log if seq(m) > start] if start <= last else log
        case "since":
            options = {"since": one.timestamp, "before": SEQ_MAX}
            chosen = [m for m in log if m.timestamp > one.timestamp]
        case _:
            pass
    if rng.random() < 0.5:
        limit = rng.choice((1, 2, 5, 100))
        options["limit"] = limit
        chosen = chosen[:limit] if "after" in options else chosen[-limit:]
    return options, chosen


@pytest.mark.parametrize("size", [1, 2, 7, 500])
async def test_every_selection_is_complete_and_in_order_although_senders_share_ids(
    size: int,
) -> None:
    rng = random.Random(size)
    async with MemoryServer() as server:
        clients = [
            server.client(server.token(user, kind="service"), history_page=size)
            for user in ("ann", "bob", "eve")
        ]
        for number in range(60):
            await server.clock.advance(rng.randrange(4) / 1000)
            try:
                await rng.choice(clients).publish(
                    TOPIC, {"data": number, "id": f"m{rng.randrange(25)}"}
                )
            except Conflict:
                continue  # this sender has used the id
        ps = clients[0]
        log = await read(ps)
        assert len({message.id for message in log}) < len(log)
        since: set[int] = set()
        for _ in range(100):
            options, chosen = choose(rng, log)
            assert await read(ps, **options) == chosen, options
            if "since" in options:
                since.add(len(chosen))
        assert since - {0}
        for one in clients:
            await one.close()
