"""One compiled TypeScript peer per test run, and one process of each language per worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.conformance.peer_process import Peers, compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def built() -> Iterator[Path]:
    """The folder of the compiled TypeScript."""
    with compiled() as folder:
        yield folder


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def peers(built: Path) -> AsyncIterator[Peers]:
    """The process of each language."""
    async with Peers(built) as peers:
        yield peers
