"""Single connections through the balancers of server-mock/deploy/."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest

from hanzoai.pubsub import PubSubClient
from pubsub_server.auth import dev_tokens
from tests.cluster.balancers import Balancer
from tests.cluster.nodes import Node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

pytestmark = pytest.mark.parametrize("kind", ["haproxy", "nginx"])


class LateNode(NamedTuple):
    """The ports of a server that answers every request late."""

    http_port: int
    ws_port: int


@asynccontextmanager
async def balanced(kind: str, folder: Path, *flags: str) -> AsyncGenerator[Balancer]:
    """Run a balancer in front of one node, which fills all three places."""
    node = Node("node", folder, "--dev-key-file", str(folder / "dev.key"), *flags)
    await node.start()
    balancer = Balancer(kind, folder / "balancer", [node] * 3, sticky=False)
    try:
        await balancer.start()
        yield balancer
    finally:
        await balancer.end()
        await node.end()


def token(folder: Path) -> str:
    return dev_tokens.mint(dev_tokens.load_key(folder / "dev.key"), "alice")


async def test_a_client_uses_tls_on_either_port_and_finds_the_socket_on_both(
    kind: str, tmp_path: Path
) -> None:
    async with balanced(kind, tmp_path) as balancer:
        for url in (balancer.ws, f"wss://127.0.0.1:{balancer.http_port}/ws"):
            async with (
                PubSubClient(
                    url,
                    token(tmp_path),
                    rest_url=balancer.http,
                    ssl_context=balancer.trust,
                    transport="websocket",
                ) as ps,
                asyncio.timeout(60),
                await ps.subscribe("demo.x") as messages,
            ):
                await ps.publish("demo.x", {"data": {"url": url}})
                assert (await anext(messages)).data == {"url": url}
        async with httpx.AsyncClient(verify=balancer.trust) as http:
            assert (await http.get(f"{balancer.http}/readyz")).status_code == 200


async def test_a_refused_token_is_audited_with_the_address_of_the_client(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "audit.jsonl"
    flags = ("--audit-file", str(file), "--audit-topics", "org.**")
    proxies = ("--trusted-proxies", "127.0.0.1")
    async with balanced(kind, tmp_path, *flags, *proxies) as balancer:
        client = httpx.AsyncHTTPTransport(verify=balancer.trust, local_address="127.0.0.2")
        async with httpx.AsyncClient(transport=client) as http:
            headers = {"Authorization": "Bearer bad", "X-Forwarded-For": "203.0.113.9"}
            answer = await http.get(f"{balancer.http}/v1/session", headers=headers)
            assert answer.status_code == 401
    (record,) = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert record["address"] == "127.0.0.2"
    assert record["request_id"] == answer.headers["X-Request-Id"]


async def test_metrics_are_not_passed_on(kind: str, tmp_path: Path) -> None:
    async with (
        balanced(kind, tmp_path) as balancer,
        httpx.AsyncClient(verify=balancer.trust) as http,
    ):
        for path in ("/metrics", "/%6detrics", "/metrics?name=x"):
            assert (await http.get(f"{balancer.http}{path}")).status_code == 404


async def test_nodes_that_answer_checks_late_stay_in_use(kind: str, tmp_path: Path) -> None:
    async def answer_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                # The subject is time: this is longer than the interval of the checks.
                await asyncio.sleep(0.3)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()

    async with await asyncio.start_server(answer_late, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        balancer = Balancer(kind, tmp_path / "balancer", [LateNode(port, port)] * 3, sticky=False)
        try:
            await balancer.start()
            async with httpx.AsyncClient(verify=balancer.trust) as http:
                statuses = [(await http.get(f"{balancer.http}/readyz")).status_code for _ in "1234"]
        finally:
            await balancer.end()
    assert statuses == [200] * 4


async def test_nothing_is_passed_on_that_came_without_tls(kind: str, tmp_path: Path) -> None:
    async with balanced(kind, tmp_path) as balancer, httpx.AsyncClient() as http:
        for port in (balancer.http_port, balancer.ws_port):
            try:
                status = (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code
            except httpx.RemoteProtocolError:
                status = 400
            assert status == 400
