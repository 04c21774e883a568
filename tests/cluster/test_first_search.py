"""A node whose searches for missed messages have not succeeded yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from pubsub_server.backplanes.redis import deliveries
from pubsub_server.backplanes.redis.opening import open_redis
from pubsub_server.settings.config import Settings
from pubsub_server.shared.requests import Draft
from tests.cluster.redis_cluster import redis_cluster
from tests.cluster.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pubsub_server.backplanes.redis.backplane import RedisBackplane
    from tests.cluster.redis_cluster import Cluster

BOUND = 60
RIGHTS = (">hush", "~*", "&*", "+@all")
TOPIC, OTHER = "demo.x", "demo.y"


async def all_servers(cluster: Cluster, *command: str) -> None:
    for server in cluster.servers:
        await server.command(*command)


async def node(cluster: Cluster, user: str) -> RedisBackplane:
    url = cluster.url.replace("//", f"//{user}:hush@")
    return await open_redis(
        Settings(redis_url=SecretStr(url), redis_cluster=True, redis_durable=True, redis_shards=2)
    )


async def publish(node: RedisBackplane, topic: str, id: str) -> None:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    node.publish([Draft(topic, "t", b"1", None, id, None)], ("service", "s"), done.set_result)
    [answer] = await done
    assert answer.id == id


async def test_missed_messages_are_delivered_though_no_search_has_succeeded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "CLOCKS_MS", 0)
    seen: list[str] = []
    async with (
        asyncio.timeout(BOUND),
        redis_cluster("redis", tmp_path / "cluster") as cluster,
    ):
        for user in ("publisher", "reader"):
            await all_servers(cluster, "ACL", "SETUSER", user, "on", *RIGHTS)
        publisher = await node(cluster, "publisher")
        await publish(publisher, TOPIC, "older")
        reader = await node(cluster, "reader")
        # The user may listen, but not search.
        await all_servers(cluster, "ACL", "SETUSER", "reader", "-eval", "-evalsha")
        reader.join("demo.*")
        reader.start(lambda entry: seen.append(entry.id))
        await asyncio.gather(*reader._feed.ready(["demo.*"]))
        await all_servers(cluster, "ACL", "SETUSER", "reader", "off")
        await all_servers(cluster, "CLIENT", "KILL", "USER", "reader")
        await until(lambda: reader._feed.up, wanted=False)
        await publish(publisher, TOPIC, "missed")
        await publish(publisher, OTHER, "missed, too")
        await all_servers(cluster, "ACL", "SETUSER", "reader", "on")
        await until(lambda: reader._feed.up)
        await publish(publisher, TOPIC, "next")
        await until(lambda: "next" in seen or reader._deliveries.unproven == [TOPIC])
        await all_servers(cluster, "ACL", "SETUSER", "reader", "+eval", "+evalsha")
        await reader.deliver_rest()
        await reader.close()
        await publisher.close()
    assert sorted(seen) == ["missed", "missed, too", "next"]
    assert seen.index("missed") < seen.index("next")
