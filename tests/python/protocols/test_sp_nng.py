"""Interoperation with NNG 1.11, which pynng contains, in both roles and directions.

`HANZO_PUBSUB_SOAK=1` sends 100,000 messages in each direction over each transport.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import TYPE_CHECKING, Any

import pynng  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
import pytest
import trustme

from hanzoai.pubsub.sp import PubSocket, SubSocket
from tests.python.protocols.sp_peers import url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMES = ("tcp", "ipc", "abstract", "ws", "tls+tcp", "wss")
COUNT = 100_000 if os.environ.get("HANZO_PUBSUB_SOAK") else 300
STEP = 100
"""Maximum messages in flight: NNG drops messages that exceed its queues."""

pytestmark = [pytest.mark.timeout(0 if COUNT > 300 else 60), pytest.mark.statement("N-40")]


def body(n: int) -> bytes:
    """Return message `n`: its length grows from 1 byte, and occasionally it is large."""
    return b"t%07d" % n + bytes([n % 256]) * (n % 300 if n % 50 else 70_000)


class Tls:
    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued.configure_cert(self.server)
        self.client = ssl.create_default_context()
        authority.configure_trust(self.client)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode()
        self.nng_server = pynng.TLSConfig(
            pynng.TLSConfig.MODE_SERVER,
            own_key_string=issued.private_key_pem.bytes().decode(),
            own_cert_string=chain,
        )
        self.nng_client = pynng.TLSConfig(
            pynng.TLSConfig.MODE_CLIENT,
            server_name="localhost",
            ca_string=authority.cert_pem.bytes().decode(),
        )


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def theirs(request: pytest.FixtureRequest) -> Iterator[Any]:
    kind = request.param
    with kind(send_buffer_size=1000) if kind is pynng.Pub0 else kind() as socket:
        if kind is pynng.Sub0:
            socket.recv_buffer_size = 1000
        socket.recv_timeout = 30_000
        yield socket


async def join(
    ours: PubSocket | SubSocket, theirs: Any, tls: Tls, target: str, *, we_listen: bool
) -> None:
    encrypted = target.startswith(("tls+tcp", "wss"))
    if we_listen:
        target = await ours.listen(target, tls.server if encrypted else None)
        if encrypted:
            theirs.tls_config = tls.nng_client
        await asyncio.to_thread(theirs.dial, target, block=False)
    else:
        if encrypted:
            theirs.tls_config = tls.nng_server
        listener = theirs.listen(target)
        if target.endswith(":0") or ":0/" in target:
            port = listener.local_address.port
            port = int.from_bytes(port.to_bytes(2, "little"), "big")
            target = target.replace(":0", f":{port}", 1)
        await ours.dial(target, tls.client if encrypted else None)
    await ours.wait_for_peers(timeout=20)


@pytest.mark.parametrize("we_listen", [True, False], ids=["we listen", "we dial"])
@pytest.mark.parametrize("theirs", [pynng.Sub0], indirect=True, ids=["to NNG"])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_nng_receives_all_messages_in_order(
    theirs: Any, tls: Tls, tmp_path: Path, scheme: str, we_listen: bool
) -> None:
    async with PubSocket(send_queue_size=STEP) as pub:
        theirs.subscribe(b"t")
        await join(pub, theirs, tls, url(scheme, tmp_path), we_listen=we_listen)
        # NNG may filter by its prefixes a moment after the handshake.
        for start in range(0, COUNT, STEP):
            bodies = [body(n) for n in range(start, start + STEP)]
            pub.send(b"other")
            for each in bodies:
                pub.send(each)

            def receive() -> list[bytes]:
                return [theirs.recv() for _ in range(STEP)]

            assert await asyncio.to_thread(receive) == bodies


@pytest.mark.parametrize("we_listen", [True, False], ids=["we listen", "we dial"])
@pytest.mark.parametrize("theirs", [pynng.Pub0], indirect=True, ids=["from NNG"])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_all_messages_of_nng_are_received_in_order(
    theirs: Any, tls: Tls, tmp_path: Path, scheme: str, we_listen: bool
) -> None:
    async with SubSocket(recv_queue_size=STEP) as sub:
        sub.subscribe(b"t")
        # NNG drops what is sent before this callback; `theirs.pipes` is not empty a moment earlier.
        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def connected(_: Any) -> None:
            loop.call_soon_threadsafe(ready.set)

        theirs.add_post_pipe_connect_cb(connected)
        await join(sub, theirs, tls, url(scheme, tmp_path), we_listen=we_listen)
        async with asyncio.timeout(60):
            await ready.wait()
        for start in range(0, COUNT, STEP):
            bodies = [body(n) for n in range(start, start + STEP)]

            def send(bodies: list[bytes] = bodies) -> None:
                theirs.send(b"other")
                for each in bodies:
                    theirs.send(each)

            await asyncio.to_thread(send)
            assert [await sub.recv(timeout=30) for _ in range(STEP)] == bodies
        assert sub.stats.dropped_by_queue == 0
