from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.websocket_rig import Server, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving() as running:
        yield running
