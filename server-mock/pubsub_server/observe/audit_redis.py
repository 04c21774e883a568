"""Writes audit records to a Redis stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import RedisError

from pubsub_server.observe.audit_streams import SEND_WITHIN

if TYPE_CHECKING:
    from collections.abc import Sequence


class RedisCarrier:
    """Appends to a stream; a record is the field `record`.

    Args:
        url: In the format of the backplane's URL.
        cluster: Whether it is a Redis Cluster.
        stream: Key of the stream.
        length: Approximate number of entries to keep.
    """

    name = "Redis"
    patience = SEND_WITHIN

    def __init__(self, url: str, *, cluster: bool, stream: str, length: int) -> None:
        kind: Any = RedisCluster if cluster else Redis
        self._redis = kind.from_url(url, socket_timeout=SEND_WITHIN)
        self._stream = stream
        self._length = length

    async def send(self, records: Sequence[bytes]) -> None:
        """See `Carrier`."""
        pipeline = self._redis.pipeline(transaction=False)
        for record in records:
            pipeline.xadd(self._stream, {"record": record}, maxlen=self._length, approximate=True)
        answers = cast("list[object]", await pipeline.execute())
        for answer in answers:
            if isinstance(answer, RedisError):
                raise answer

    async def close(self) -> None:
        """See `Carrier`."""
        await self._redis.aclose()

    def explain(self, error: Exception) -> str:
        """See `Carrier`."""
        # The text may contain users, or addresses with credentials.
        return type(error).__name__
