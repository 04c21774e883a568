from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import respx

from hanzoai.pubsub.http.rest import Rest
from tests.python.rest.rig import QuickClock, Tokens, make_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
async def rest(clock: QuickClock, tokens: Tokens) -> AsyncIterator[Rest]:
    rest = Rest(make_options(), tokens, clock, random=lambda: 0.5)
    yield rest
    await rest.close()


@pytest.fixture
def server() -> Any:
    with respx.mock(assert_all_called=True) as mock:
        yield mock
