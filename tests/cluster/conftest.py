from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.store import Store, running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@pytest.fixture(params=["valkey", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    """A separate store for the test, which writes each change to disk."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    async with running(request.param, tmp_path / "store", *options) as store:
        yield store
