"""Tokens expire every second while a job publishes.

Set HANZO_PUBSUB_SOAK to test with 100,000 rows.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pubsub_server.auth import dev_tokens
from tests.spark.cluster.scene import ROWS, SOAK, scene

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from pathlib import Path

    from tests.spark.cluster.driver import Driver
    from tests.spark.cluster.scene import Scene

    Drivers = Callable[[Mapping[str, str]], Driver]

pytestmark = pytest.mark.timeout(900 if SOAK else 600)

LIFE = 1.0
RATE = ROWS / (40 if SOAK else 8)
"""Rows per second of each of two concurrent tasks, so that several tokens expire meanwhile."""


@asynccontextmanager
async def short_lives(server: Scene) -> AsyncGenerator[None]:
    """Each token expires after a second, and is replaced only afterwards."""

    async def renew() -> None:
        scratch = server.token_file.with_suffix(".new")
        while True:
            scratch.write_text(dev_tokens.mint(server.key, "spark", kind="service", ttl=LIFE))
            # Replace atomically: a reader gets either the old or the new token.
            os.replace(scratch, server.token_file)
            await asyncio.sleep(LIFE)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()


async def test_a_token_that_ends_every_second_loses_and_repeats_nothing(
    drivers: Drivers, tmp_path: Path
) -> None:
    async with scene(tmp_path, "tokens") as server, short_lives(server):
        options = server.options(maxRowsPerSecond=str(RATE), batchSize="100")
        account = await server.play(drivers({}), server.job("batch", options=options), {})
    assert account.fate == (0, 0)
    assert account.refused > 0
    assert account.runs == 1
