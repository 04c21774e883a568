from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest

from hanzoai.pubsub.generated.wire import (
    PingFrame,
    Publication,
    PublishFrame,
    SubscribedFrame,
    SubscribeFrame,
)
from hanzoai.pubsub.settings.options import read_options
from hanzoai.pubsub.transports.sse import SseTransport
from tests.python.sse.rig import BASE, TOKEN, Answer, Client, Peer, message, numbers, problem, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.mark.parametrize(
    ("answer", "code", "retry_after", "reason"),
    [
        (httpx.Response(429, headers={"Retry-After": "4"}), 4429, 4.0, "HTTP 429"),
        (httpx.Response(503, headers={"Retry-After": "2"}), 1013, 2.0, "HTTP 503"),
        (httpx.Response(500), None, None, "HTTP 500"),
        (httpx.Response(302), None, None, "HTTP 302"),
        (httpx.Response(200, json={}), None, None, "not an event stream"),
        (httpx.ConnectError("x"), None, None, "127.0.0.1"),
    ],
)
async def test_a_stream_that_cannot_be_had_ends_the_transport(
    client: Client,
    peer: Peer,
    answer: Answer,
    code: int | None,
    retry_after: float | None,
    reason: str,
) -> None:
    await client.authenticate()
    peer.answer("/v1/subscribe", answer)
    client.send(SubscribeFrame(topics=["a"], ref="s1"))
    closed = await client.closed()
    assert (closed.code, closed.retry_after) == (code, retry_after)
    assert reason in closed.reason


async def test_a_rejection_counts_even_if_its_body_is_cut(client: Client, peer: Peer) -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield b"{"
        raise httpx.ReadError("cut")

    await client.authenticate()
    peer.answer("/v1/subscribe", httpx.Response(403, content=cut()))
    client.send(SubscribeFrame(topics=["a"], ref="s1"))
    (frame,) = await client.next()
    assert isinstance(frame, SubscribedFrame)
    assert [denial.code for denial in frame.denied or ()] == ["forbidden"]


async def test_no_stream_at_any_address_ends_the_transport(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.answer("/v1/subscribe", httpx.Response(404), httpx.Response(404))
    client.send(SubscribeFrame(topics=["a"], ref="s1"))
    assert "HTTP 404" in (await client.closed()).reason


async def test_a_lost_stream_ends_the_transport_after_what_came(client: Client, peer: Peer) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(message(1))
    stream.end(httpx.ReadError("cut"))
    closed = await client.closed()
    assert numbers(client.came) == [1]
    assert closed.code is None


async def test_a_full_connection_limit_lets_the_old_stream_go_first(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    first = await client.subscribe(SubscribeFrame(topics=["a"], ref="s1"))
    first.write(message(1))
    await client.next()
    peer.answer("/v1/subscribe", problem(429, "connection_limit"))
    second = await client.subscribe(SubscribeFrame(topics=["b"], ref="s2"))
    assert first.closed.is_set()
    second.write(message(2))
    assert numbers(await client.next()) == [2]


async def test_a_cancelled_close_still_closes_the_connections() -> None:
    class Carried(httpx.MockTransport):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    peer = Peer()
    client = Client(peer)
    carried = Carried(peer.handle)
    options = read_options(BASE, TOKEN, settings={}, environ={})
    client.transport = SseTransport(options, client.clock, transport=carried)
    await client.open()
    await client.authenticate()
    peer.gate = asyncio.Event()
    client.send(PublishFrame(message=Publication(topic="a.b", type="t", data=1, id="m1"), ref="1"))
    await until(lambda: len(peer.requests) == 2)

    closing = asyncio.create_task(client.transport.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert carried.closed


async def test_close_ends_stream_and_requests(client: Client, peer: Peer) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a"], ref="s1"))
    stream.write(message(1))
    await client.next()
    peer.gate = asyncio.Event()
    client.send(PublishFrame(message=Publication(topic="a", data=1, id="m"), ref="p1"))
    await asyncio.sleep(0)
    await client.transport.close(4408)
    await client.transport.close()
    await stream.closed.wait()
    client.send(PingFrame())


def test_a_program_that_ends_without_close_leaves_no_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = Peer()

    async def run() -> None:
        client = Client(peer)
        await client.open()
        await client.authenticate()
        peer.gate = asyncio.Event()
        publish = PublishFrame(message=Publication(topic="a", data=1, id="m"), ref="p1")
        # In the last turn of the loop before asyncio cancels the tasks.
        asyncio.get_running_loop().call_soon(
            client.send, SubscribeFrame(topics=["a"], ref="s1"), publish
        )

    asyncio.run(run())
    assert caplog.messages == []
    assert len(peer.requests) == 1
