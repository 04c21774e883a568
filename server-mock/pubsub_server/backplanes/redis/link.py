"""Connections to Redis: one for publishes, a few for reading, and one that listens (`feed`)."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError as RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pubsub_server.instruments import Distribution

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

LINK_ERRORS: Final = (
    RedisConnectionError,
    RedisTimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    MasterDownError,
    ClusterDownError,
    ClusterError,
    RedisClusterException,
    TryAgainError,
    OutOfMemoryError,
)
"""What goes away by itself or by an operator's hand: it is tried again for a while."""

READERS: Final = 8
ANSWER_WITHIN: Final = 5.0
"""Seconds; a Redis that says nothing for longer is taken for lost."""

Argument = str | bytes | int


class _Script:
    """A script after `shared.lua`, called by its digest; sent again where it is forgotten."""

    def __init__(self, name: str) -> None:
        folder = Path(__file__).parent
        self._source = "".join(
            (folder / part).read_text(encoding="utf-8") for part in ("shared.lua", name)
        )
        self._digest: str | None = None

    async def call(
        self, client: Redis | RedisCluster, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> list[Any]:
        """Run it."""
        commands = cast("Any", client)
        if self._digest is not None:
            try:
                answer = await commands.evalsha(self._digest, len(keys), *keys, *arguments)
                return cast("list[Any]", answer)
            except NoScriptError:
                pass
        answer = await commands.eval(self._source, len(keys), *keys, *arguments)
        if self._digest is None:
            self._digest = sha1(self._source.encode(), usedforsecurity=False).hexdigest()
        return cast("list[Any]", answer)


class Link:
    """All that is asked of Redis, but for listening.

    Args:
        url: `redis://`, `rediss://` or `unix://`; with ``cluster`` any node of it.
        cluster: Whether it is a Redis Cluster.

    Attributes:
        cluster: As given.
        round_trips: Seconds of calls that were answered: `publish`, `read`, `stand`.
        failures: Calls that were not.
    """

    def __init__(self, url: str, *, cluster: bool) -> None:
        self.cluster = cluster
        self.round_trips = {name: Distribution() for name in ("publish", "read", "stand")}
        self.failures = 0
        self._publish = _Script("publish.lua")
        self._read = _Script("read.lua")
        self._stand = _Script("stand.lua")
        self._scripts: dict[str, _Script] = {}
        self._url = url
        if cluster:
            shared = RedisCluster.from_url(url, socket_timeout=ANSWER_WITHIN)
            self._writer: Any = shared
            self._readers: Any = shared
            return
        # Nothing is repeated in here: who asks knows what may be repeated, and how long.
        once = Retry(NoBackoff(), 0)
        self._writer = cast("Any", Redis).from_url(
            url,
            single_connection_client=False,
            max_connections=1,
            socket_timeout=ANSWER_WITHIN,
            retry=once,
        )
        pool = cast("Any", BlockingConnectionPool).from_url(
            url,
            max_connections=READERS,
            timeout=ANSWER_WITHIN,
            socket_timeout=ANSWER_WITHIN,
            retry=once,
        )
        self._readers = Redis.from_pool(pool)

    async def check(self) -> str:
        """The version of the server.

        Raises:
            RedisError: It cannot be reached, refuses the credentials, or is older than 7.
        """
        info = cast("dict[str, Any]", await self._readers.info("server"))
        if self.cluster:
            info = cast("dict[str, Any]", next(iter(info.values())))
        version = str(info.get("redis_version", "0"))
        if int(version.split(".")[0]) < 7:
            raise ResponseError(f"Redis {version} has no sharded channels; 7.0 or later is needed")
        return str(info.get("valkey_version") or version)

    async def publish(self, keys: Sequence[str], arguments: Sequence[Argument]) -> list[bytes]:
        """See `publish.lua`."""
        return await self._timed("publish", self._publish.call(self._writer, keys, arguments))

    async def read(self, base: str, arguments: Sequence[Argument]) -> list[Any]:
        """See `read.lua`."""
        return await self._timed("read", self._read.call(self._readers, [base], arguments))

    async def stand(self, base: str, arguments: Sequence[Argument]) -> list[bytes]:
        """See `stand.lua`."""
        return await self._timed("stand", self._stand.call(self._readers, [base], arguments))

    async def call(
        self, name: str, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> list[Any]:
        """Run the script of this file; it says what it takes and gives."""
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = _Script(name)
        return await script.call(self._readers, keys, arguments)

    async def keep_first(self, key: str, value: str) -> str:
        """Set a key that nobody has set; what it holds then."""
        await self._readers.set(key, value, nx=True)
        found = cast("bytes", await self._readers.get(key))
        return found.decode()

    async def mark(self, index: str, name: str, score: int) -> None:
        """Put a name into an index, if it is there already."""
        await self._readers.zadd(index, {name: score}, xx=True)

    async def strike(self, index: str, name: str) -> None:
        """Take a name out of an index."""
        await self._readers.zrem(index, name)

    async def member(self, key: str, client_id: str) -> bytes | None:
        """One field of a hash."""
        return cast("bytes | None", await self._readers.hget(key, client_id))

    async def topics(self, index: str, *, since: int = 0) -> list[bytes]:
        """Topics of a shard whose newest message is not older than this, Unix ms."""
        found = await self._readers.zrange(index, since, "+inf", byscore=True)
        return cast("list[bytes]", found)

    async def topics_of(self, indices: Sequence[str], *, since: int) -> list[list[bytes]]:
        """As `topics`, of several shards, where few are expected."""
        if self.cluster:
            return [await self.topics(index, since=since) for index in indices]
        async with self._readers.pipeline(transaction=False) as calls:
            for index in indices:
                calls.zrange(index, since, "+inf", byscore=True)
            return cast("list[list[bytes]]", await calls.execute())

    async def forget(self, index: str, before: int) -> None:
        """Drop topics without a message since this from the index of a shard."""
        await self._readers.zremrangebyscore(index, "-inf", before)

    async def delete(self, keys: Sequence[str]) -> None:
        """Drop keys of one shard."""
        await self._readers.delete(*keys)

    async def time(self) -> int:
        """The clock of Redis, Unix ms."""
        seconds, microseconds = await self._readers.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def listener(self) -> Redis | RedisCluster:
        """A client of its own for listening; its owner closes it."""
        if self.cluster:
            return RedisCluster.from_url(self._url, socket_timeout=ANSWER_WITHIN)
        client: Redis = cast("Any", Redis).from_url(
            self._url, socket_timeout=ANSWER_WITHIN, retry=Retry(NoBackoff(), 0)
        )
        return client

    async def close(self) -> None:
        """Close all connections."""
        await self._writer.aclose()
        await self._readers.aclose()

    async def _timed(self, name: str, call: Awaitable[list[Any]]) -> list[Any]:
        began = perf_counter()
        try:
            answer = await call
        except RedisError:
            self.failures += 1
            raise
        self.round_trips[name].observe(perf_counter() - began)
        return answer
