from __future__ import annotations

import json
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hanzoai.pubsub.errors import (
    NotFound,
    ProtocolError,
)
from hanzoai.pubsub.http import calls as rest_calls
from hanzoai.pubsub.http.rest import Rest
from tests.python.rest.rig import BASE, ENVELOPE, QuickClock, Tokens, make_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def test_a_page_of_history_is_asked_for_by_what_is_given(rest: Rest, server: Any) -> None:
    body = {"messages": [ENVELOPE], "has_more": True}
    route = server.get(f"{BASE}/v1/topics/a.b/history").mock(
        return_value=httpx.Response(200, json=body)
    )
    page = await rest.perform(rest_calls.history("a.b", since=0, before="m 9&x", limit=10))
    assert page.has_more
    assert page.messages[0].wire() == ENVELOPE
    assert dict(route.calls[0].request.url.params) == {
        "since": "0",
        "before": "m 9&x",
        "limit": "10",
    }
    await rest.perform(rest_calls.history("a.b", after=3))
    assert dict(route.calls[1].request.url.params) == {"after": "3"}


async def test_a_page_of_a_plain_peer_is_read_as_far_as_it_can_be(rest: Rest, server: Any) -> None:
    odd = [{"id": "1", "topic": "a", "data": 1, "message_type": "t"}, 5, {"id": "2"}]
    body = {"messages": odd, "has_more": None, "position": "x"}
    server.get(f"{BASE}/v1/topics/a.b/history").mock(return_value=httpx.Response(200, json=body))
    page = await rest.perform(rest_calls.history("a.b"))
    assert [(m.id, m.type, m.timestamp) for m in page.messages] == [("1", "t", 0)]
    assert not page.has_more
    assert page.ids == ["1", "2"]


async def test_presence_and_topics_are_read_in_every_form(rest: Rest, server: Any) -> None:
    members = [{"id": "alice", "name": "Alice"}, 3]
    server.get(f"{BASE}/v1/topics/a.b/presence").mock(
        return_value=httpx.Response(200, json={"members": members})
    )
    assert [member.user_id for member in await rest.perform(rest_calls.presence("a.b"))] == [
        "alice"
    ]
    full = {"topic": "a", "subscribers": 2, "messages": 3, "position": 9, "last_message_at": 4}
    route = server.get(f"{BASE}/v1/topics").mock(
        side_effect=[
            httpx.Response(200, json={"topics": [full], "has_more": True}),
            httpx.Response(200, json={"topics": ["x", {"name": "y", "subscribers": -1}, {}, 4.5]}),
        ]
    )
    listed = await rest.perform(rest_calls.topics(prefix="a.", limit=5))
    assert (listed.topics[0].wire(), listed.has_more) == (full, True)
    assert dict(route.calls[0].request.url.params) == {"prefix": "a.", "limit": "5"}
    assert [(t.topic, t.subscribers) for t in (await rest.perform(rest_calls.topics())).topics] == [
        ("x", 0),
        ("y", 0),
    ]


async def test_positions_are_asked_for_by_topic_and_waited_for_beyond_the_timeout(
    rest: Rest, server: Any
) -> None:
    stand = {"topic": "a.b", "first": 3, "last": 9, "at": 4}
    route = server.post(f"{BASE}/v1/positions").mock(
        side_effect=[
            httpx.Response(200, json={"positions": [stand], "timestamp": 7}),
            httpx.Response(200, json={"positions": [{"topic": "a.*"}], "timestamp": 7}),
            httpx.Response(404),
        ]
    )
    found = await rest.positions(
        ["a.b", "c.*"], after={"a.b": 3}, at=4, wait_ms=30_000, timeout=0.05
    )
    assert found.wire() == {"positions": [stand], "timestamp": 7}
    body = {"topics": ["a.b", "c.*"], "after": {"a.b": 3}, "at": 4, "wait_ms": 30_000}
    assert json.loads(route.calls[0].request.content) == body
    with pytest.raises(ProtocolError, match="positions of the server have an unknown format"):
        await rest.positions(["a.b"])
    with pytest.raises(NotFound):
        await rest.positions(["a.b"])
    assert json.loads(route.calls[1].request.content) == {"topics": ["a.b"]}


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>Welcome</html>"),
        httpx.Response(200, json={"members": 5}),
        httpx.Response(200, json=[]),
    ],
)
async def test_an_answer_of_something_else_is_a_protocol_error(
    rest: Rest, server: Any, answer: httpx.Response
) -> None:
    server.get(f"{BASE}/v1/topics/a.b/presence").mock(return_value=answer)
    with pytest.raises(ProtocolError):
        await rest.perform(rest_calls.presence("a.b"))


async def test_an_answer_over_the_limit_is_not_read_to_its_end(server: Any) -> None:
    rest = Rest(make_options(max_frame=1_024), Tokens(), QuickClock())
    server.get(f"{BASE}/v1/topics").mock(return_value=httpx.Response(200, content=b"x" * 2_000))
    with pytest.raises(ProtocolError, match="more than 1,024 bytes"):
        await rest.perform(rest_calls.topics())
    await rest.close()


async def test_a_redirect_is_not_followed(rest: Rest, server: Any) -> None:
    server.get(f"{BASE}/v1/topics").mock(
        return_value=httpx.Response(302, headers={"Location": "http://evil.example/"})
    )
    with pytest.raises(ProtocolError):
        await rest.perform(rest_calls.topics())


class Chunks(httpx.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


async def test_the_decompressed_size_of_an_answer_is_limited() -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(100)) + packer.flush()

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Chunks(packed))

    site = httpx.MockTransport(answer)
    rest = Rest(make_options(max_frame=1 << 20), Tokens(), QuickClock(), transport=site)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more than 1,048,576 bytes"):
            await rest.perform(rest_calls.history("a.b"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 << 20
    await rest.close()
