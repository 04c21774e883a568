"""A replacement for IAM, and servers that trust it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pubsub_server.hub.faults import Drop
from pubsub_server.testing import running_server
from tests.interop.peer import Iam, Node

Start = Callable[..., Awaitable[Node]]
RulesFile = Callable[[str], Path]
OPEN_RULES = """
rules:
  - pattern: "**"
    require: {authenticated: true}
    publish: true
"""


@pytest.fixture(scope="session")
def iam() -> Iterator[Iam]:
    authority = Iam()
    yield authority
    authority.close()


@pytest.fixture
async def start(iam: Iam) -> AsyncIterator[Start]:
    """Start servers like a deployment behind a TLS proxy, with the given settings."""
    async with AsyncExitStack() as stack:

        async def start(**settings: object) -> Node:
            base = {
                "behind_tls_proxy": True,
                "iam_jwks_url": iam.jwks_url,
                "jwks_timeout": 30_000,
                "jwt_leeway": 0,
            }
            own = await stack.enter_async_context(AsyncExitStack())
            server = await own.enter_async_context(running_server(**{**base, **settings}))
            # On a busy machine, the keys may take longer than a sign-in waits for them.
            jwks: Any = server.server._jwks
            if (fetching := jwks._keys._fetching) is not None:
                await asyncio.wait([fetching])

            def cut() -> None:
                server.faults.inject(Drop())

            return Node(http=server.http, ws=server.ws, iam=iam, stop=own.aclose, cut=cut)

        yield start


@pytest.fixture
async def node(start: Start) -> Node:
    """A server with the defaults of HIP-56, except for the publish rates."""
    return await start(publish_rate_user=1e6, publish_rate_service=1e6)


@pytest.fixture
def rules(tmp_path: Path) -> RulesFile:
    """Write a file with access rules."""

    def write(text: str) -> Path:
        path = tmp_path / "rules.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
async def open_node(start: Start, rules: RulesFile) -> Node:
    """A server that allows everything to authenticated users, without rate limits."""
    return await start(rules=rules(OPEN_RULES), publish_rate_user=1e6, publish_rate_service=1e6)
