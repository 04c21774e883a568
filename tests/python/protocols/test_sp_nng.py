"""Interoperation with NNG 1.11, which pynng contains, in both roles and directions.

`HANZO_PUBSUB_SOAK=1` sends 100,000 messages in each direction over each transport.
"""

from __future__ import annotations

import os
import re
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from hanzoai.pubsub.sp import PubSocket, SubSocket
from tests.python.protocols.nng import nng_process
from tests.python.protocols.sp_peers import url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.python.protocols.nng import Nng

SCHEMES = ("tcp", "ipc", "abstract", "ws", "tls+tcp", "wss")
COUNT = 100_000 if os.environ.get("HANZO_PUBSUB_SOAK") else 300
STEP = 100
"""Maximum messages in flight: NNG drops messages that exceed its queues."""

pytestmark = [pytest.mark.timeout(0 if COUNT > 300 else 60), pytest.mark.statement("N-40")]


def body(n: int) -> bytes:
    """Return message `n`: its length grows from 1 byte, and occasionally it is large."""
    return b"t%07d" % n + bytes([n % 256]) * (n % 300 if n % 50 else 70_000)


class Tls:
    def __init__(self) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued.configure_cert(self.server)
        self.client = ssl.create_default_context()
        authority.configure_trust(self.client)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode()
        self.nng_server = (issued.private_key_pem.bytes().decode(), chain)
        self.nng_client = authority.cert_pem.bytes().decode()


@pytest.fixture(scope="module")
def tls() -> Tls:
    return Tls()


@pytest.fixture(scope="module")
def nng() -> Iterator[Nng]:
    with nng_process() as process:
        yield process


async def join(
    ours: PubSocket | SubSocket, theirs: Nng, tls: Tls, target: str, *, we_listen: bool
) -> None:
    encrypted = target.startswith(("tls+tcp", "wss"))
    if we_listen:
        target = await ours.listen(target, tls.server if encrypted else None)
        await theirs.call("dial", target, tls.nng_client if encrypted else None)
    else:
        port = await theirs.call("listen", target, tls.nng_server if encrypted else None)
        target = re.sub(r":0\b", f":{port}", target)
        await ours.dial(target, tls.client if encrypted else None)
    await ours.wait_for_peers(timeout=20)


@pytest.mark.parametrize("we_listen", [True, False], ids=["we listen", "we dial"])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_nng_receives_all_messages_in_order(
    nng: Nng, tls: Tls, tmp_path: Path, scheme: str, we_listen: bool
) -> None:
    async with PubSocket(send_queue_size=STEP) as pub, nng.socket("sub") as theirs:
        await theirs.call("subscribe", b"t")
        await join(pub, theirs, tls, url(scheme, tmp_path), we_listen=we_listen)
        # NNG may filter by its prefixes a moment after the handshake.
        for start in range(0, COUNT, STEP):
            bodies = [body(n) for n in range(start, start + STEP)]
            pub.send(b"other")
            for each in bodies:
                pub.send(each)
            assert await theirs.call("receive", STEP) == bodies


@pytest.mark.parametrize("we_listen", [True, False], ids=["we listen", "we dial"])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_all_messages_of_nng_are_received_in_order(
    nng: Nng, tls: Tls, tmp_path: Path, scheme: str, we_listen: bool
) -> None:
    async with SubSocket(recv_queue_size=STEP) as sub, nng.socket("pub") as theirs:
        sub.subscribe(b"t")
        await join(sub, theirs, tls, url(scheme, tmp_path), we_listen=we_listen)
        assert await theirs.call("wait_connected")
        for start in range(0, COUNT, STEP):
            bodies = [body(n) for n in range(start, start + STEP)]
            await theirs.call("send", [b"other", *bodies])
            assert [await sub.recv(timeout=30) for _ in range(STEP)] == bodies
        assert sub.stats.dropped_by_queue == 0
