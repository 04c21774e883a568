from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@pytest.fixture(params=["valkey", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    """A separate store for the test, which writes each change to disk."""
    folder = tmp_path / "store"
    folder.mkdir()
    store = Store(request.param, folder, "--appendonly", "yes", "--appendfsync", "always")
    await store.start()
    yield store
    await store.end()
