"""Limits the time that an operation waits for Redis."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pubsub_server.backplanes.redis.servers import LINK_ERRORS
from pubsub_server.backplanes.redis.writer import REFUSED_FOR
from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def available(
    seconds: float, detail: str = "the store cannot be reached"
) -> AsyncGenerator[None]:
    """Wait for Redis at most this long.

    Raises:
        ServiceError: `unavailable` with this detail, if Redis does not answer in time, or refuses.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except (TimeoutError, *LINK_ERRORS):
        raise unavailable(detail) from None


def unavailable(detail: str) -> ServiceError:
    """The error of an operation that Redis does not answer."""
    return ServiceError("unavailable", detail, retry_after_ms=REFUSED_FOR)
