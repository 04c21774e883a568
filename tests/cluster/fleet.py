"""Nodes on one store, in this process or in separate ones, and raw clients of these nodes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
from websockets.asyncio.client import connect

from pubsub_server.testing import RunningServer, running_server
from tests import forked
from tests.interop.peer import EventStream, Socket

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from tests.cluster.front import Front
    from tests.cluster.nodes import Node
    from tests.cluster.redis_cluster import Cluster
    from tests.cluster.store import Store

BOUND = 60
GRACE = 500
HEARTBEAT = 200
TIMEOUT = 2_000
SHARDS = 4


def settings(store: Store | Cluster | Front, **more: object) -> dict[str, object]:
    """Settings of a node: heartbeats and grace are shorter than in production."""
    return {
        "redis_url": store.url,
        "redis_shards": SHARDS,
        "redis_durable": True,
        "dev_key_file": str(store.folder.parent / "dev.key"),
        "presence_grace": GRACE,
        "node_heartbeat": HEARTBEAT,
        "node_timeout": TIMEOUT,
        "publish_rate_user": 1_000,
        **more,
    }


@asynccontextmanager
async def nodes(
    store: Store | Cluster | Front, count: int = 2, **more: object
) -> AsyncGenerator[list[RunningServer]]:
    """Run `count` nodes in this process; each accepts the tokens of the others."""
    async with running_server(**settings(store, **more)) as first:
        if count == 1:
            yield [first]
            return
        async with nodes(store, count - 1, **more) as others:
            yield [first, *others]


class RefusedError(Exception):
    """The server rejected a peer; contains the frame with the reason."""

    def __init__(self, frame: dict[str, Any]) -> None:
        super().__init__(str(frame))
        self.frame = frame


class Process:
    """A node in a separate process.

    Args:
        process: The process.
        ready: The data that it printed when it was ready.
    """

    def __init__(self, process: forked.Server, ready: dict[str, Any]) -> None:
        self.ws: str = ready["ws"]
        self.http: str = ready["http"]
        self._process = process

    async def end(self, number: int) -> int:
        """Send a signal that ends it; return its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()

    def stall(self) -> None:
        """Pause the process until `go_on`."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume the process."""
        self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def node_process(store: Store | Front, **more: object) -> AsyncGenerator[Process]:
    """Run a node in a separate process."""
    given = {"dev": True, "http_port": 0, "ws_port": 0, **settings(store, **more)}
    environment = {f"HANZO_PUBSUB_{name.upper()}": str(value) for name, value in given.items()}
    process = await forked.serve(env={**os.environ, **environment})
    try:
        ready = json.loads(await process.stdout.readline())
        yield Process(process, ready)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def peer(
    node: RunningServer | Process | Node, token: str, client_id: str | None = None
) -> AsyncGenerator[Socket]:
    """Open an authenticated socket; with an id, it resumes.

    Raises:
        RefusedError: The server rejects it.
    """
    async with connect(
        node.ws, compression=None, ping_interval=None, max_size=None, close_timeout=1
    ) as connection:
        socket = Socket(connection)
        frame: dict[str, Any] = {"type": "auth", "token": token}
        if client_id is not None:
            frame["client_id"] = client_id
        await socket.send(frame)
        answer = await socket.next()
        if answer["type"] != "auth.ok":
            raise RefusedError(answer)
        socket.client_id = answer["client_id"]
        yield socket


@asynccontextmanager
async def meeting(
    store: Store, here: Sequence[str] = (), there: Sequence[str] = (), **more: object
) -> AsyncGenerator[tuple[list[RunningServer], list[Socket]]]:
    """Run two nodes and their peers, within the timeout of a test.

    Args:
        store: The store of both nodes.
        here: Users with a socket at the first node.
        there: Users with a socket at the second node.
        **more: Settings.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(BOUND))
        both = await stack.enter_async_context(nodes(store, 2, **more))
        a, b = both
        at = [*((a, user) for user in here), *((b, user) for user in there)]
        peers = [await stack.enter_async_context(peer(node, node.token(user))) for node, user in at]
        yield both, peers


@asynccontextmanager
async def stream(
    node: RunningServer, token: str, mark: str | None = None, **query: str
) -> AsyncGenerator[EventStream]:
    """Open an event stream; with a mark, it resumes after this event id."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    if mark is not None:
        headers["Last-Event-ID"] = mark
    async with (
        httpx.AsyncClient(base_url=node.http, headers=headers, timeout=BOUND) as rest,
        rest.stream("GET", "/v1/subscribe", params=query) as response,
    ):
        assert response.status_code == 200, await response.aread()
        yield EventStream(response)


async def present(node: RunningServer, topic: str, token: str) -> list[dict[str, Any]]:
    """Return the members from `GET /v1/topics/{topic}/presence`."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=node.http, headers=headers, timeout=BOUND) as rest:
        answer = await rest.get(f"/v1/topics/{topic}/presence")
    assert answer.status_code == 200, answer.text
    members: list[dict[str, Any]] = answer.json()["members"]
    return members
