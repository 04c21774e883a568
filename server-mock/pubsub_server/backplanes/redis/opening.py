"""Opening the backplane: is there a Redis, may we use it, and is it new enough."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from pubsub_server.backplanes.redis.backplane import RedisBackplane
from pubsub_server.backplanes.redis.layout import Layout
from pubsub_server.backplanes.redis.link import Link
from pubsub_server.backplanes.redis.servers import LINK_ERRORS

if TYPE_CHECKING:
    from pubsub_server.backplanes.redis.community import Community
    from pubsub_server.backplanes.retention import Retention


class UnusableError(Exception):
    """Why this Redis cannot be used, and what to do; never with the URL, which has a secret."""


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
        UnusableError: It cannot be reached, refuses the credentials, or is too old.
    """
    try:
        link = Link(url, cluster=cluster, durable=durable)
    except (ValueError, *LINK_ERRORS) as error:
        raise UnusableError(f"it is no usable URL ({type(error).__name__})") from None
    layout = Layout(prefix, shards)
    try:
        await link.check(layout.secret)
        secret = await link.keep_first(layout.secret, secrets.token_hex(32))
    except (AuthenticationError, NoPermissionError) as error:
        await link.close()
        raise UnusableError(f"Redis refuses the user or password: {error}") from None
    except ResponseError as error:
        await link.close()
        raise UnusableError(str(error)) from None
    except (OSError, *LINK_ERRORS) as error:
        await link.close()
        said = f"Redis cannot be reached ({type(error).__name__}); is it running?"
        raise UnusableError(said) from None
    return RedisBackplane(
        link,
        layout,
        retention=retention,
        ids=ids,
        remember=remember,
        community=community,
        secret=secret,
    )
