"""Opening the backplane: is there a Redis, may we use it, and is it new enough."""

from __future__ import annotations

import errno
import logging
import os
import secrets
from typing import TYPE_CHECKING, Any

from redis.asyncio.connection import parse_url
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pubsub_server.backplanes.redis.backplane import RedisBackplane
from pubsub_server.backplanes.redis.layout import VERSION, Layout
from pubsub_server.backplanes.redis.link import Link
from pubsub_server.backplanes.redis.servers import LINK_ERRORS

if TYPE_CHECKING:
    from pubsub_server.backplanes.redis.community import Community
    from pubsub_server.backplanes.retention import Retention

logger = logging.getLogger(__name__)


class UnusableError(Exception):
    """Why this Redis cannot be used, and what to do; never with the URL, which has a secret.

    Args:
        said: Why, and what to do.
        setting: The setting that is to be changed.
    """

    def __init__(self, said: str, setting: str = "redis_url") -> None:
        super().__init__(said)
        self.setting = setting


async def open_backplane(
    url: str,
    *,
    cluster: bool,
    durable: bool,
    prefix: str,
    shards: int,
    retention: Retention,
    ids: int,
    remember: int,
    community: Community,
) -> RedisBackplane:
    """Connect, and see that it is usable.

    Args:
        url: See `link.Link`.
        cluster: See `link.Link`.
        durable: See `link.Link`.
        prefix: See `layout.Layout`.
        shards: See `layout.Layout`.
        retention: What each log keeps.
        ids: Remembered of each shard, and as many again.
        remember: Seconds ids are remembered, as far as there is room.
        community: What the nodes share beside the logs.

    Raises:
        UnusableError: It cannot be reached, refuses the credentials, is too old, or was laid out
            with another number of shards.
    """
    try:
        link = Link(url, cluster=cluster, durable=durable)
    except (ValueError, *LINK_ERRORS) as error:
        raise UnusableError(f"it is no usable URL ({type(error).__name__})") from None
    layout = Layout(prefix, shards)
    try:
        await link.check(layout.secret)
        _compare(layout, await link.keep_first(layout.laid, layout.mark))
        secret = await link.keep_first(layout.secret, secrets.token_hex(32))
        await _compare_timeouts(link, layout, round(community.timeout * 1000))
    except UnusableError:
        await link.close()
        raise
    except (AuthenticationError, NoPermissionError) as error:
        await link.close()
        raise UnusableError(f"Redis refuses the user or password: {error}") from None
    except ResponseError as error:
        await link.close()
        raise UnusableError(str(error)) from None
    except (OSError, *LINK_ERRORS) as error:
        await link.close()
        raise UnusableError(_unreachable(url, error)) from None
    return RedisBackplane(
        link,
        layout,
        retention=retention,
        ids=ids,
        remember=remember,
        community=community,
        secret=secret,
    )


def _unreachable(url: str, error: Exception) -> str:
    # No more of the URL than this: the rest may be a secret.
    options: dict[str, Any] = dict(parse_url(url))
    where = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    said = f"Redis cannot be reached at {where} ({_cause(error)})"
    silent = isinstance(error, (RedisTimeoutError, TimeoutError))
    if url.startswith("rediss:"):
        return f"{said}; is it running, and does it speak TLS there? Else write redis://"
    if silent or "closed" in str(error):
        return f"{said}; does it want TLS there (rediss://), or is something else there?"
    return f"{said}; is it running?"


def _cause(error: BaseException) -> str:
    """What the system said, where it said something."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror:
            # Of several addresses each is told behind the text of the first.
            known = errno.errorcode.get(at.errno or 0)
            return os.strerror(at.errno) if known and at.errno else at.strerror
        at = at.__cause__ or at.__context__
    return type(error).__name__


def _compare(layout: Layout, found: str) -> None:
    if found == layout.mark:
        return
    version, _, shards = found.partition(" ")
    if version != str(VERSION):
        raise UnusableError(
            f"this Redis was laid out by another release (layout {version}, this one has"
            f" {VERSION}) under prefix {layout.prefix}; run that release, or take another prefix",
            "redis_prefix",
        )
    raise UnusableError(
        f"this Redis was laid out with {shards} shards under prefix {layout.prefix}, not with"
        f" {len(layout.bases)}; set redis_shards to {shards}, or take another redis_prefix",
        "redis_shards",
    )


async def _compare_timeouts(link: Link, layout: Layout, timeout: int) -> None:
    before = await link.exchange(layout.timeout, str(timeout))
    if before is not None and before != str(timeout):
        logger.warning(
            "node_timeout is %d ms here and was %s ms on the node that was started before; set the"
            " same on every node, or some are given up too early",
            timeout,
            before,
        )
