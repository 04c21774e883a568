"""Bodies that are expensive to parse, and what they leave to the other connections."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import trustme

from pubsub_server.listeners.http import connection as http_connection
from pubsub_server.shared import turns
from pubsub_server.testing import running_server
from tests.cluster.waiting import until
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pubsub_server.testing import RunningServer

BOUND = 60.0
BATCH = {"messages": [{"topic": "demo.a", "data": "x" * 10_000}] * 10}


@pytest.fixture
async def server() -> AsyncGenerator[RunningServer]:
    async with running_server(publish_rate_user=1e6) as running:
        yield running


def chunked(server: RunningServer, body: bytes, size: int) -> bytes:
    lines = (
        "POST /v1/messages:batch HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {server.token()}",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
        "Connection: close",
    )
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return "\r\n".join([*lines, "", ""]).encode() + chunks + b"0\r\n\r\n"


async def post(server: RunningServer, data: bytes) -> bytes:
    url = urlsplit(server.http)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        async with asyncio.timeout(BOUND):
            writer.write(data)
            return await reader.read()
    finally:
        writer.transport.abort()


async def test_bodies_arrive_whole_though_each_piece_waits_for_its_turn(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SECONDS", 1e-9)
    monkeypatch.setattr(http_connection, "PIECE", 1_000)
    headers = {"Authorization": f"Bearer {server.token()}"}
    async with http_client(base_url=server.http, headers=headers) as client:
        posts = [client.post("/v1/messages:batch", json=BATCH) for _ in range(10)]
        async with asyncio.timeout(BOUND):
            answers = await asyncio.gather(*posts)
    assert [answer.status_code for answer in answers] == [200] * 10
    answer = await post(server, chunked(server, json.dumps(BATCH).encode(), 100))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert server.stats.published == 110


async def test_a_body_in_chunks_of_one_byte_is_refused_before_it_is_parsed(
    server: RunningServer,
) -> None:
    body = json.dumps(BATCH).encode()
    answer = await post(server, chunked(server, body, 1))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"chunks of a few bytes" in answer
    kept = chunked(server, body, 1).replace(b"Connection: close\r\n", b"")
    assert b"\r\nConnection: close\r\n" in await post(server, kept)
    assert (await post(server, chunked(server, body, 8))).startswith(b"HTTP/1.1 200 ")
    few = json.dumps({"messages": [{"topic": "demo.a", "data": "x" * 5_000}]}).encode()
    assert (await post(server, chunked(server, few, 1))).startswith(b"HTTP/1.1 200 ")


async def test_a_body_does_not_count_the_bytes_of_the_requests_behind_it(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "FRAMING", 1_000)
    first = json.dumps({"messages": [{"topic": "demo.a", "data": "x" * 100}]}).encode()
    url = urlsplit(server.http)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        async with asyncio.timeout(BOUND):
            head, rest = (
                chunked(server, first, 50)
                .replace(b"Connection: close\r\n", b"")
                .split(b"\r\n\r\n", 1)
            )
            writer.write(head + b"\r\nExpect: 100-continue\r\n\r\n" + rest[:50])
            # Its handler reads the body.
            await reader.readuntil(b"100 Continue\r\n\r\n")
            writer.write(rest[50:] + chunked(server, json.dumps(BATCH).encode(), 100_000))
            answers = await reader.read()
    finally:
        writer.transport.abort()
    assert answers.count(b"HTTP/1.1 200 ") == 2
    assert server.stats.published == 11


async def test_what_waits_for_its_turn_is_handled_though_its_client_has_closed_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, pem = trustme.CA(), tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr(turns, "SECONDS", 1e-9)
    async with running_server(tls_cert=pem, tls_key=pem, publish_rate_user=1e6) as server:
        url = urlsplit(server.http)
        data = chunked(server, json.dumps(BATCH).encode(), 1_000)

        async def send() -> None:
            _, writer = await asyncio.open_connection(url.hostname, url.port, ssl=trusting)
            writer.write(data)
            writer.close()
            await writer.wait_closed()

        async with asyncio.timeout(BOUND):
            await asyncio.gather(*(send() for _ in range(5)))
            await until(lambda: server.stats.published, 50)
