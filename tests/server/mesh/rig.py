"""Nodes of a mesh in this process, their clients, and helpers that wait for their state."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from hanzoai.pubsub import PubSubClient
from pubsub_server.backplanes.mesh.backplane import MeshBackplane
from pubsub_server.testing import running_server
from tests.server.protocols.peers import BOUND, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hanzoai.pubsub import Subscription
    from pubsub_server.backplanes.mesh.mesh import Mesh
    from pubsub_server.testing import RunningServer

QUICK: dict[str, Any] = {
    "backplane": "mesh",
    "mesh_listen": "0",
    "mesh_heartbeat": 500,
    "mesh_ack_timeout": 250,
    "mesh_linger": 0,
    "publish_rate_service": 1e6,
    "drain_timeout": 200,
    "drain_spread": 0,
}


class MeshNode:
    """A running node."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.url = server.server.others["mesh"]
        self.address = self.url.partition("://")[2]

    @property
    def backplane(self) -> MeshBackplane:
        found = self.server.hub.core.backplane
        assert isinstance(found, MeshBackplane)
        return found

    @property
    def mesh(self) -> Mesh:
        return self.backplane.mesh

    @property
    def id(self) -> str:
        return self.mesh.terms.node

    def client(self, **options: Any) -> PubSubClient:
        # A busy machine may take longer than the default.
        patient: dict[str, Any] = {"operation_timeout": BOUND, **options}
        return PubSubClient(url=self.server.ws, token=self.server.service_token(), **patient)

    def wanting(self, topic: str) -> set[str]:
        """Ids of the connected nodes that want a topic."""
        return {remote.node for remote in self.mesh.wanting(topic) if remote.link is not None}


@asynccontextmanager
async def node(*peers: MeshNode | str, **settings: Any) -> AsyncGenerator[MeshNode]:
    """Run a node that dials these addresses."""
    addresses = tuple(each if isinstance(each, str) else each.address for each in peers)
    async with running_server(**{**QUICK, "mesh_peer": addresses, **settings}) as server:
        yield MeshNode(server)


@asynccontextmanager
async def nodes(count: int, **settings: Any) -> AsyncGenerator[list[MeshNode]]:
    """Run nodes that each know only the first one."""
    async with AsyncExitStack() as stack:
        found: list[MeshNode] = []
        for _ in range(count):
            found.append(await stack.enter_async_context(node(*found[:1], **settings)))
        await until(lambda: all(each.mesh.peers == count - 1 for each in found))
        yield found


async def joined(subscription: Subscription) -> None:
    """Wait until the server has answered."""
    await subscription
