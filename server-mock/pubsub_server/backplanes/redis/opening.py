"""Opens the backplane, and checks whether this Redis can be used."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from redis.exceptions import InvalidResponse, ResponseError

from pubsub_server.backplanes.redis.backplane import RedisBackplane
from pubsub_server.backplanes.redis.errors import unusable
from pubsub_server.backplanes.redis.layout import VERSION, Layout
from pubsub_server.backplanes.redis.link import Link
from pubsub_server.backplanes.redis.reader import Reader
from pubsub_server.backplanes.redis.redis_clock import RedisClock
from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.backplanes.redis.url import check_url

if TYPE_CHECKING:
    from pubsub_server.settings.config import Settings

logger = logging.getLogger(__name__)

FIRST_CALL_WITHIN: Final = 1.0
"""Seconds in which the servers of a cluster must answer at the start."""


class UnusableError(Exception):
    """The error for an unusable Redis. It never contains the URL, which has a secret.

    Args:
        detail: The reason and the remedy.
        setting: The setting to change.
    """

    def __init__(self, detail: str, setting: str = "redis_url") -> None:
        super().__init__(detail)
        self.setting = setting


async def open_redis(settings: Settings) -> RedisBackplane:
    """Connect, and check that Redis can be used.

    Args:
        settings: Those of the server, with a `redis_url`.

    Raises:
        UnusableError: It cannot be reached, refuses the credentials, is too old, or was laid out
            with another number of shards.
    """
    assert settings.redis_url is not None
    url, cluster = settings.redis_url.get_secret_value(), settings.redis_cluster
    try:
        check_url(url)
        link = Link(url, cluster=cluster, durable=settings.redis_durable)
    except ValueError as error:
        raise UnusableError(str(error)) from None
    layout = Layout(settings.redis_prefix, settings.redis_shards, cluster=cluster)
    clock = RedisClock()
    try:
        secret, opened = await _prepare(link, layout, settings.node_timeout, clock)
        if settings.redis_durable:
            await _check_durability(link, layout)
    except BaseException as error:
        # This may also be a cancellation.
        await link.close()
        if isinstance(error, (InvalidResponse, OSError, ResponseError, *LINK_ERRORS)):
            raise UnusableError(unusable(url, error, cluster=cluster)) from None
        raise
    return RedisBackplane(link, layout, settings, secret, opened, clock)


async def _prepare(link: Link, layout: Layout, timeout: int, clock: RedisClock) -> tuple[str, int]:
    """Check Redis, lay out a new one, and return the secret of its nodes and its time in ms."""
    await link.check(layout.secret)
    await link.check_permissions(layout.secret)
    _compare(layout, await link.set_default(layout.mark_key, layout.mark))
    secret = await link.set_default(layout.secret, secrets.token_hex(32))
    # Before the first client, whose times are those of Redis.
    sent = clock.steady()
    opened = await link.time(layout.nodes)
    clock.read(opened, sent)
    await _compare_timeouts(link, layout, timeout)
    await _begin_shards(link, layout)
    await _check_eviction(link, layout)
    return secret, opened


def _compare(layout: Layout, found: str) -> None:
    if found == layout.mark:
        return
    version, _, shards = found.partition(" ")
    if version != str(VERSION):
        raise UnusableError(
            f"this Redis was set up by another release (layout {version}, this one has"
            f" {VERSION}) under prefix {layout.prefix}; run that release, or stop all its nodes"
            " and then set another redis_prefix on every node of this one:"
            " https://pubsub.hanzo.ai/docs/operations/#another-format",
            "redis_prefix",
        )
    raise UnusableError(
        f"this Redis was set up with {shards} shards under prefix {layout.prefix}, not with"
        f" {len(layout.bases)}; set redis_shards to {shards}, or set another redis_prefix",
        "redis_shards",
    )


async def _compare_timeouts(link: Link, layout: Layout, timeout: int) -> None:
    before = await link.exchange(layout.timeout, str(timeout))
    if before is not None and before != str(timeout):
        logger.warning(
            "node_timeout is %d ms on this node and %s ms on the previous one; set the same value"
            " on every node, or nodes remove each other too early",
            timeout,
            before,
        )


async def _check_eviction(link: Link, layout: Layout) -> None:
    # A server of a cluster may be unavailable.
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_CALL_WITHIN):
            if names := await link.eviction_policies(layout.bases):
                logger.warning(
                    "Redis may evict any key when it is full (maxmemory-policy %s), and history,"
                    " positions, members and counts with them; set noeviction, and enough memory",
                    names,
                )


async def _check_durability(link: Link, layout: Layout) -> None:
    # As for eviction.
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_CALL_WITHIN):
            if await link.in_memory_only(layout.bases):
                logger.warning(
                    "redis_durable is set, but Redis keeps messages in memory only (appendonly no):"
                    " after a restart of Redis, clients miss messages without a gap. Set"
                    " appendonly yes and appendfsync always in Redis, or turn off redis_durable"
                )


async def _begin_shards(link: Link, layout: Layout) -> None:
    """Use each shard of a new store before a client gets a time of this node.

    A shard has lost nothing since its first use. A stream that resumes by an earlier time would get
    a gap.
    """
    reader = Reader(link, layout)
    calls = [reader.sweep(shard, 0) for shard in range(len(layout.bases))]
    # If a server of a cluster is unavailable, later calls use its shards first.
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_CALL_WITHIN):
            await asyncio.gather(*calls, return_exceptions=True)
