from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanzoai.pubsub.clock import SystemClock
from hanzoai.pubsub.generated.wire import (
    AuthErrorFrame,
    AuthExpiringFrame,
    AuthFrame,
    AuthOkFrame,
    ClientFrame,
    ErrorFrame,
    Limits,
    MessageFrame,
    PingFrame,
    PresenceSnapshotFrame,
    PresenceUpdateFrame,
    Publication,
    PublishedFrame,
    PublishFrame,
    ServerFrame,
    SubscribedFrame,
    SubscribeFrame,
    UnsubscribedFrame,
    UnsubscribeFrame,
)
from hanzoai.pubsub.settings.options import RetryOptions, read_options
from hanzoai.pubsub.transports import TransportClosed
from hanzoai.pubsub.transports.sse import SseTransport

BASE = "http://127.0.0.1:8056"
TOKEN = "s3cr3t-token-value"
INFO = {
    "client_id": "cl_1",
    "user_id": "alice",
    "version": 1,
    "features": ["ref", "ack", "seq", "idempotency", "batch", "resume", "meta"],
    "limits": {"publish_rate": 10},
}


def envelope(number: int, topic: str = "a.b", **more: Any) -> dict[str, Any]:
    return {"id": f"m{number}", "topic": topic, "type": "t", "data": 1, "timestamp": number, **more}


def event(name: str, data: Any, *, id: str | None = None) -> bytes:
    lines = [f"event: {name}", *([f"id: {id}"] if id else []), f"data: {json.dumps(data)}"]
    return "\n".join([*lines, "", ""]).encode()


def message(number: int, topic: str = "a.b", **more: Any) -> bytes:
    return event("message", envelope(number, topic, **more), id=f"{number}-{topic}@{number}")


class Clock(SystemClock):
    """Sleeps not at all; its time is set by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Stream(httpx.AsyncByteStream):
    """The body of one event stream, written by the test."""

    def __init__(self, request: httpx.Request) -> None:
        self.request = request
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.taken = 0

    def write(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.queue.put_nowait(chunk)

    def end(self, error: Exception | None = None) -> None:
        self.queue.put_nowait(error)

    @property
    def body(self) -> Any:
        return json.loads(self.request.content)

    @property
    def token(self) -> str:
        return self.request.headers["Authorization"].removeprefix("Bearer ")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            chunk = await self.queue.get()
            if chunk is None:
                return
            if isinstance(chunk, Exception):
                raise chunk
            self.taken += 1
            yield chunk

    async def aclose(self) -> None:
        self.closed.set()


Answer = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class Peer:
    """A server whose answers the test chooses; what has no answer is answered well."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.requests: list[httpx.Request] = []
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()
        self.plain = False
        self.bare_stream = 400
        """What a stream of no topic is answered with."""
        self.gate: asyncio.Event | None = None

    def answer(self, path: str, *answers: Answer) -> None:
        self.answers.setdefault(path, []).extend(answers)

    def sent(self, path: str) -> list[Any]:
        return [json.loads(r.content) for r in self.requests if r.url.path == path]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path
        if self.gate is not None:
            await self.gate.wait()
        if path == "/v1/subscribe" and request.method == "GET" and not request.url.params:
            return httpx.Response(self.bare_stream)
        waiting = self.answers.get(path)
        if waiting:
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer if isinstance(answer, httpx.Response) else answer(request)
        if path == "/v1/session" and not self.plain:
            return httpx.Response(200, json=INFO)
        if path == "/v1/subscribe" and (request.method == "GET" or not self.plain):
            stream = Stream(request)
            self.streams.put_nowait(stream)
            return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=stream)
        if path == "/v1/messages:batch" and not self.plain:
            ids = [one["id"] for one in json.loads(request.content)["messages"]]
            return httpx.Response(200, json={"results": [{"id": i, "timestamp": 1} for i in ids]})
        if path.endswith("/messages"):
            id = json.loads(request.content).get("id") or "server-1"
            return httpx.Response(200, json={"id": id, "timestamp": 1, "seq": 7})
        return httpx.Response(404)


class Client:
    """A transport and what came out of it."""

    def __init__(self, peer: Peer, **settings: Any) -> None:
        self.clock = Clock()
        options = read_options(
            BASE, TOKEN, settings={"retry": RetryOptions(base=0.001), **settings}, environ={}
        )
        carried = httpx.MockTransport(peer.handle)
        self.transport = SseTransport(options, self.clock, transport=carried)
        self.peer = peer
        self.came: list[ServerFrame] = []

    def send(self, *frames: ClientFrame) -> None:
        self.transport.send(frames)

    async def next(self, count: int = 1) -> list[ServerFrame]:
        while len(self.came) < count:
            self.came += await self.transport.receive()
        first, self.came = self.came[:count], self.came[count:]
        return first

    async def closed(self) -> TransportClosed:
        while True:
            try:
                self.came += await self.transport.receive()
            except TransportClosed as closed:
                return closed

    async def authenticate(self, token: str = TOKEN) -> AuthOkFrame:
        self.send(AuthFrame(token=token, version=1))
        (frame,) = await self.next()
        assert isinstance(frame, AuthOkFrame), frame
        return frame

    async def subscribe(self, *frames: SubscribeFrame) -> Stream:
        self.send(*frames)
        return await self.peer.streams.get()


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
async def client(peer: Peer) -> AsyncGenerator[Client]:
    async with asyncio.timeout(20):
        client = Client(peer)
        await client.transport.open()
        yield client
        await client.transport.close()
        left = [t for t in asyncio.all_tasks() if t.get_name().startswith("hanzoai.pubsub")]
        assert left == []


@pytest.fixture
def plain(peer: Peer) -> Peer:
    peer.plain = True
    return peer


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for happens inside the transport
        await asyncio.sleep(0)


def numbers(frames: list[ServerFrame]) -> list[int]:
    return [frame.message.timestamp for frame in frames if isinstance(frame, MessageFrame)]


def problem(status: int, code: str, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"title": "T", "status": status, "code": code, **more})


# ---------------------------------------------------------------- auth


async def test_auth_asks_for_the_session_with_the_token_in_the_header(
    client: Client, peer: Peer
) -> None:
    frame = await client.authenticate("Bearer abc")
    assert (frame.client_id, frame.user_id, frame.version) == ("cl_1", "alice", 1)
    assert frame.limits is not None
    assert frame.limits.publish_rate == 10
    (request,) = peer.requests
    assert request.headers["Authorization"] == "Bearer abc"
    assert "abc" not in str(request.url)


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(404), httpx.Response(405), httpx.Response(200, text="<html>")],
    ids=["404", "405", "a page"],
)
async def test_a_peer_without_sessions_is_a_plain_one(
    client: Client, peer: Peer, answer: httpx.Response
) -> None:
    peer.answer("/v1/session", answer)
    assert (await client.authenticate()).version is None


@pytest.mark.parametrize("status", [404, 405, 501, 200])
async def test_what_has_neither_sessions_nor_streams_is_no_peer(
    client: Client, peer: Peer, status: int
) -> None:
    peer.plain, peer.bare_stream = True, status
    client.send(AuthFrame(token=TOKEN, version=1))
    end = await client.closed()
    assert client.came == []
    assert end.code is None
    assert "neither /v1/session nor /v1/subscribe" in end.reason
    assert "check `rest_url`" in end.reason


@pytest.mark.parametrize(
    ("answer", "code", "wait"),
    [
        (problem(401, "token_expired"), "token_expired", None),
        (httpx.Response(401), "unauthenticated", None),
        (problem(403, "forbidden"), "forbidden", None),
        (problem(429, "connection_limit", retry_after_ms=500), "connection_limit", 500),
    ],
)
async def test_a_refused_session_is_an_auth_error(
    client: Client, peer: Peer, answer: httpx.Response, code: str, wait: int | None
) -> None:
    peer.answer("/v1/session", answer)
    client.send(AuthFrame(token=TOKEN, ref="9"))
    (frame,) = await client.next()
    assert isinstance(frame, AuthErrorFrame)
    assert (frame.code, frame.retry_after_ms, frame.ref) == (code, wait, "9")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(503, headers={"Retry-After": "3"}),
        httpx.Response(500),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("late"),
    ],
)
async def test_a_server_that_fails_ends_the_transport(
    client: Client, peer: Peer, answer: Answer
) -> None:
    peer.answer("/v1/session", answer)
    client.send(AuthFrame(token=TOKEN))
    closed = await client.closed()
    assert closed.code is None
    assert closed.reason
    if isinstance(answer, httpx.Response) and answer.status_code == 503:
        assert closed.retry_after == 3
    assert len(peer.requests) == 1


# ---------------------------------------------------------------- subscriptions


async def test_the_subscriptions_of_one_turn_go_in_one_request(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(SubscribeFrame(topics=["a.*"], since=5, ref="s1", presence=False))
    stream = await client.subscribe(
        SubscribeFrame(topics=["b"], after={"b": 7}, history=3, ref="s2", presence=True)
    )
    assert stream.request.method == "POST"
    assert stream.request.headers["Accept"] == "text/event-stream"
    assert stream.body == {
        "subscriptions": [
            {"topics": ["a.*"], "since": 5, "ref": "s1"},
            {"topics": ["b"], "after": {"b": 7}, "history": 3, "ref": "s2"},
        ],
        "presence": True,
    }
    stream.write(event("subscribed", {"topics": ["a.*"], "ref": "s1", "positions": {"a.b": 3}}))
    stream.write(message(4), event("presence", {"topic": "b", "members": []}))
    frames = await client.next(3)
    assert [type(frame) for frame in frames] == [
        SubscribedFrame,
        MessageFrame,
        PresenceSnapshotFrame,
    ]


async def test_the_stream_before_is_read_until_the_next_one_answers(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    first = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    first.write(message(1))
    await client.next()
    peer.gate = asyncio.Event()
    client.send(SubscribeFrame(topics=["a.b"], after={"a.b": 1}, ref="s2"))
    await until(lambda: len(peer.requests) >= 3)
    first.write(message(2))
    assert numbers(await client.next()) == [2]
    assert not first.closed.is_set()
    peer.gate.set()
    second = await peer.streams.get()
    await first.closed.wait()
    second.write(message(3))
    assert numbers(await client.next()) == [3]


async def test_an_opening_that_is_overtaken_is_given_up(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.gate = asyncio.Event()
    client.send(SubscribeFrame(topics=["a"], ref="s1"))
    await until(lambda: len(peer.requests) >= 2)
    client.send(SubscribeFrame(topics=["a", "b"], ref="s2"))
    await until(lambda: len(peer.requests) >= 3)
    peer.gate.set()
    stream = await peer.streams.get()
    assert [one["ref"] for one in stream.body["subscriptions"]] == ["s2"]
    stream.write(message(1))
    await client.next()
    assert peer.streams.empty()


async def test_unsubscribing_from_all_ends_the_stream(client: Client, peer: Peer) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a"], ref="s1"))
    stream.write(message(1))
    await client.next()
    client.send(UnsubscribeFrame(topics=["a"], ref="u1"))
    assert await client.next() == [UnsubscribedFrame(topics=["a"], ref="u1")]
    await stream.closed.wait()
    again = await client.subscribe(SubscribeFrame(topics=["b"], ref="s2"))
    again.write(message(2))
    assert numbers(await client.next()) == [2]


async def test_a_peer_that_knows_no_post_is_asked_by_get(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.answer("/v1/subscribe", httpx.Response(405))
    stream = await client.subscribe(SubscribeFrame(topics=["a", "b.*"], since=5, ref="s1"))
    assert stream.request.method == "GET"
    assert dict(stream.request.url.params) == {"topics": "a,b.*", "since": "5"}
    stream.write(event("subscribed", {"topics": ["a", "b.*"], "history": [envelope(6, "a")]}))
    (frame,) = await client.next()
    assert isinstance(frame, SubscribedFrame)
    assert frame.ref == "s1"


# ---------------------------------------------------------------- a plain HIP-56 peer


async def test_one_answer_of_a_plain_peer_is_shared_by_the_subscriptions(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    stream = await client.subscribe(
        SubscribeFrame(topics=["a.*"], since=10),
        SubscribeFrame(topics=["a.b", "c"], since=20),
        SubscribeFrame(topics=["**"]),
    )
    assert dict(stream.request.url.params) == {"topics": "a.*,a.b,c,**", "since": "10"}
    history = [envelope(11, "a.b"), envelope(20, "a.b"), envelope(21, "c"), envelope(0, "a.x")]
    stream.write(event("subscribed", {"topics": ["a.*", "a.b", "**"], "history": history}))
    stream.write(message(30))
    frames = await client.next(4)
    answers = [frame for frame in frames if isinstance(frame, SubscribedFrame)]
    assert [answer.topics for answer in answers] == [["a.*"], ["a.b"], ["**"]]
    assert [[m.timestamp for m in answer.history or []] for answer in answers] == [
        [11, 20, 0],
        [21],
        [],
    ]
    assert numbers(frames) == [30]


async def test_a_plain_peer_is_asked_for_no_history_nobody_wants(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a"]))
    assert dict(stream.request.url.params) == {"topics": "a"}


async def test_requests_that_are_overtaken_get_an_answer_all_the_same(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    first = await client.subscribe(SubscribeFrame(topics=["a"]))
    plain.gate = asyncio.Event()
    client.send(SubscribeFrame(topics=["a"], since=5))
    assert await client.next() == [SubscribedFrame(topics=["a"])]
    first.write(event("subscribed", {"topics": ["a"], "history": [envelope(1, "a")]}))
    first.write(message(4, "a"))
    assert numbers(await client.next()) == [4]
    plain.gate.set()
    second = await plain.streams.get()
    second.write(event("subscribed", {"topics": ["a"], "history": [envelope(6, "a")]}))
    (answer,) = await client.next()
    assert isinstance(answer, SubscribedFrame)
    assert [m.timestamp for m in answer.history or []] == [6]


async def test_a_plain_peer_says_at_the_stream_that_the_token_is_bad(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    plain.answer("/v1/subscribe", httpx.Response(401, json={"error": "token_expired"}))
    client.send(SubscribeFrame(topics=["a"]))
    (frame,) = await client.next()
    assert isinstance(frame, AuthErrorFrame)
    assert frame.code == "token_expired"


async def test_a_forbidden_topic_is_told_and_the_transport_lives_on(
    client: Client, plain: Peer
) -> None:
    await client.authenticate()
    plain.answer("/v1/subscribe", httpx.Response(403), problem(403, "forbidden", detail="no"))
    client.send(SubscribeFrame(topics=["a", "b"]))
    (frame,) = await client.next()
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.topic) == ("forbidden", "a")
    client.send(SubscribeFrame(topics=["c"], ref="s7"))
    (frame,) = await client.next()
    assert isinstance(frame, SubscribedFrame)
    assert [(d.topic, d.code, d.message) for d in frame.denied or []] == [("c", "forbidden", "no")]
    stream = await client.subscribe(SubscribeFrame(topics=["d"]))
    stream.write(message(1))
    assert numbers(await client.next()) == [1]


# ---------------------------------------------------------------- tokens that end


async def test_a_new_token_reopens_the_stream_from_where_each_topic_stands(
    client: Client, peer: Peer
) -> None:
    await client.authenticate("one")
    first = await client.subscribe(
        SubscribeFrame(topics=["a.*"], ref="s1"), SubscribeFrame(topics=["c"], since=9, ref="s2")
    )
    first.write(
        event(
            "subscribed", {"topics": ["a.*"], "ref": "s1", "timestamp": 50, "positions": {"a.x": 4}}
        ),
        event("subscribed", {"topics": ["c"], "ref": "s2", "timestamp": 51}),
        message(60, "a.b", seq=7),
        message(61, "c", seq=3),
        event("auth.expiring", {"expires_in": 60_000}),
    )
    frames = await client.next(5)
    assert isinstance(frames[-1], AuthExpiringFrame)
    await client.authenticate("two")
    second = await peer.streams.get()
    assert second.token == "two"
    assert second.body["subscriptions"] == [
        {"topics": ["a.*"], "since": 50, "after": {"a.x": 4, "a.b": 7}, "ref": "s1"},
        {"topics": ["c"], "since": 9, "after": {"c": 3}, "ref": "s2"},
    ]
    missed = [envelope(62, "a.b", seq=8), envelope(63, "a.n", seq=1)]
    denied = [{"topic": "c", "code": "forbidden"}]
    second.write(
        event("subscribed", {"topics": ["a.*"], "ref": "s1", "history": missed}),
        event("subscribed", {"topics": [], "ref": "s2", "denied": denied}),
        message(64, "a.b", seq=9),
    )
    frames = await client.next(4)
    assert numbers(frames) == [62, 63, 64]
    assert isinstance(frames[2], ErrorFrame)
    assert frames[2].topic == "c"


async def test_a_new_token_before_the_answer_changes_nothing_of_the_request(
    client: Client, peer: Peer
) -> None:
    await client.authenticate("one")
    first = await client.subscribe(SubscribeFrame(topics=["a"], history=5, ref="s1"))
    first.write(b": hello\n\n")
    await client.authenticate("two")
    second = await peer.streams.get()
    assert second.body["subscriptions"] == [{"topics": ["a"], "history": 5, "ref": "s1"}]
    second.write(event("subscribed", {"topics": ["a"], "ref": "s1", "history": [envelope(1)]}))
    (frame,) = await client.next()
    assert isinstance(frame, SubscribedFrame)


async def test_a_plain_peer_replays_an_overlap_after_a_new_token(
    client: Client, plain: Peer
) -> None:
    await client.authenticate("one")
    first = await client.subscribe(SubscribeFrame(topics=["a.b"]))
    first.write(event("subscribed", {"topics": ["a.b"], "history": []}), message(90_000))
    await client.next(2)
    await client.authenticate("two")
    second = await plain.streams.get()
    assert dict(second.request.url.params) == {"topics": "a.b", "since": "85000"}
    history = [envelope(90_000), envelope(90_001)]
    second.write(event("subscribed", {"topics": ["a.b"], "history": history}))
    assert numbers(await client.next(2)) == [90_000, 90_001]


async def test_a_new_token_without_subscriptions_opens_nothing(client: Client, peer: Peer) -> None:
    await client.authenticate("one")
    await client.authenticate("two")
    assert [request.url.path for request in peer.requests] == ["/v1/session"] * 2


# ---------------------------------------------------------------- bytes

BODY = (
    'data: {"id":"m1","topic":"a.b","type":"t",\n'
    'id: 1-a.b@1\ndata:"data":"gr\u00fc\u00df \U0001f600\u2028 \u0085 x","timestamp":1}\n\n'
    "retry: 2500\n\n"
    ": keepalive\n\n"
    "unknown: field\nevent: surprise\ndata: {}\n\n"
    'data: {"id":"m2","topic":"a.b","type":"t","data":null,"timestamp":2}\n\n'
    ": keepalive\n\n"
    "event: message\ndata: {broken\n\n"
    "event: message\n\n"
    'event: presence\ndata: {"topic":"a.b","members":[{"id":"u"}]}\n\n'
    'event: message\ndata: {"id":"m3","topic":"a.b","type":"t","data":3,"timestamp":3}\n\n'
)


async def read_body(chunks: list[bytes]) -> tuple[list[ServerFrame], TransportClosed]:
    client = Client(Peer())
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(*chunks)
    stream.end()
    closed = await client.closed()
    await client.transport.close()
    return client.came, closed


def check_body(frames: list[ServerFrame], closed: TransportClosed) -> None:
    assert numbers(frames) == [1, 2, 3]
    assert isinstance(frames[0], MessageFrame)
    assert frames[0].message.data == "gr\u00fc\u00df \U0001f600\u2028 \u0085 x"
    assert isinstance(frames[2], PresenceSnapshotFrame)
    assert (closed.code, closed.retry_after) == (None, 2.5)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "BOM"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
async def test_chunks_may_be_cut_anywhere(end: str, mark: str, size: int) -> None:
    data = (mark + BODY).replace("\n", end).encode()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    check_body(*await read_body(chunks))


@given(st.lists(st.integers(0, len(BODY.encode())), max_size=8), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=50, deadline=None)
def test_chunks_may_be_cut_at_random(cuts: list[int], end: str) -> None:
    data = BODY.replace("\n", end).encode()
    places = [0, *sorted(cuts), len(data)]
    chunks = [data[start:stop] for start, stop in itertools.pairwise(places)]
    check_body(*asyncio.run(read_body(chunks)))


async def test_an_event_that_ends_in_carriage_returns_is_not_held_back(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(message(1).replace(b"\n", b"\r"))
    assert numbers(await client.next()) == [1]


async def test_comments_count_as_heard(client: Client, peer: Peer) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(message(1))
    await client.next()
    client.clock.time = 500.0
    stream.write(b": keepalive\n\n")
    await until(lambda: stream.taken >= 2)
    assert client.transport.last_heard == 500.0


async def test_an_event_over_the_limit_ends_the_transport(peer: Peer) -> None:
    client = Client(peer, max_frame=2_000)
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    for number in range(20):
        stream.write(event("message", envelope(number)))
    stream.write(*[b": keepalive\n\n"] * 200, message(20))
    assert numbers(await client.next(21)) == list(range(21))
    stream.write(b"data: ", *[b"x" * 500] * 5)
    assert (await client.closed()).code == 1009
    await client.transport.close()


async def test_a_stream_that_nobody_reads_is_not_read_on(client: Client, peer: Peer) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    for number in range(1_000):
        stream.write(message(number))
    await until(lambda: stream.taken >= 250)
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert stream.taken < 300
    assert numbers(await client.next(1_000)) == list(range(1_000))


# ---------------------------------------------------------------- the end of a stream


@pytest.mark.parametrize(
    ("answer", "code", "retry_after", "reason"),
    [
        (httpx.Response(429, headers={"Retry-After": "4"}), 4429, 4.0, "HTTP 429"),
        (httpx.Response(503, headers={"Retry-After": "2"}), 1013, 2.0, "HTTP 503"),
        (httpx.Response(500), None, None, "HTTP 500"),
        (httpx.Response(302), None, None, "HTTP 302"),
        (httpx.Response(200, json={}), None, None, "no event stream"),
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


async def test_a_close_that_is_cancelled_closes_the_connections_all_the_same() -> None:
    class Carried(httpx.MockTransport):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    peer = Peer()
    client = Client(peer)
    carried = Carried(peer.handle)
    options = read_options(BASE, TOKEN, settings={}, environ={})
    client.transport = SseTransport(options, client.clock, transport=carried)
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
    assert (await client.closed()).code == 4408
    client.send(PingFrame())


# ---------------------------------------------------------------- publishing


def publish(id: str | None, ref: str | None, topic: str = "a.b") -> PublishFrame:
    return PublishFrame(message=Publication(topic=topic, type="t", data={"n": id}, id=id), ref=ref)


async def test_a_publish_is_answered_by_its_ref(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(publish("m1", "p1"))
    assert await client.next() == [PublishedFrame(id="m1", timestamp=1, seq=7, ref="p1")]
    request = peer.requests[-1]
    assert request.url.path == "/v1/topics/a.b/messages"
    assert request.headers["Idempotency-Key"] == "m1"


async def test_what_waits_goes_in_one_batch_and_order_is_kept(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(*[publish(f"m{n}", f"p{n}") for n in range(50)])
    frames = await client.next(50)
    assert [frame.ref for frame in frames if isinstance(frame, PublishedFrame)] == [
        f"p{n}" for n in range(50)
    ]
    batches = peer.sent("/v1/messages:batch")
    ids = [one["id"] for batch in batches for one in batch["messages"]]
    assert ids == [f"m{n}" for n in range(50)]
    assert len(peer.requests) < 5


async def test_a_batch_frame_gets_one_answer_with_all_results(client: Client, peer: Peer) -> None:
    await client.authenticate()
    refused = {"error": {"code": "forbidden", "message": "no"}}
    body = {"results": [{"id": "m1", "timestamp": 1}, refused]}
    peer.answer("/v1/messages:batch", httpx.Response(200, json=body))
    pair = [Publication(topic="a", data=1, id="m1"), Publication(topic="b", data=2, id="m2")]
    client.send(PublishFrame(messages=pair, ref="p1"))
    (frame,) = await client.next()
    assert isinstance(frame, PublishedFrame)
    assert [(one.id, one.error and one.error.code) for one in frame.results or []] == [
        ("m1", None),
        ("m2", "forbidden"),
    ]


async def test_a_refused_publish_is_an_error_with_its_ref(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.answer("/v1/topics/a.b/messages", problem(403, "forbidden", detail="no"))
    client.send(publish("m1", "p1"))
    (frame,) = await client.next()
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.message, frame.topic, frame.ref) == ("forbidden", "no", "a.b", "p1")
    client.send(publish("m2", "p2"))
    assert isinstance((await client.next())[0], PublishedFrame)


async def test_one_refused_item_of_a_batch_is_an_error_of_its_frame(
    client: Client, peer: Peer
) -> None:
    await client.authenticate()
    limited = {"error": {"code": "rate_limited", "message": "slow", "retry_after_ms": 90}}
    body = {"results": [limited, {"id": "m2", "timestamp": 1}]}
    peer.answer("/v1/messages:batch", httpx.Response(200, json=body))
    client.send(publish("m1", "p1"), publish("m2", "p2"))
    first, second = await client.next(2)
    assert isinstance(first, ErrorFrame)
    assert (first.code, first.retry_after_ms, first.ref) == ("rate_limited", 90, "p1")
    assert isinstance(second, PublishedFrame)


async def test_a_lost_publish_ends_the_transport_unanswered(client: Client, peer: Peer) -> None:
    await client.authenticate()
    peer.answer("/v1/topics/a.b/messages", *[httpx.ReadError("cut")] * 4)
    client.send(publish("m1", "p1"))
    closed = await client.closed()
    assert closed.code is None
    assert client.came == []


async def test_a_lost_publish_that_nobody_sends_again_is_told(client: Client, plain: Peer) -> None:
    await client.authenticate()
    plain.answer("/v1/topics/a.b/messages", httpx.ReadError("cut"))
    client.send(publish(None, None))
    await client.closed()
    (frame,) = client.came
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.topic) == ("outcome_unknown", "a.b")


async def test_a_publish_refused_for_its_token_goes_again_with_the_next_one(
    client: Client, peer: Peer
) -> None:
    await client.authenticate("one")

    def expire(request: httpx.Request) -> httpx.Response:
        client.transport._token = "two"
        return problem(401, "token_expired")

    peer.answer("/v1/topics/a.b/messages", expire)
    client.send(publish("m1", "p1"))
    assert isinstance((await client.next())[0], PublishedFrame)
    assert peer.requests[-1].headers["Authorization"] == "Bearer two"


async def test_the_flat_form_of_a_publish_is_published_too(client: Client, plain: Peer) -> None:
    await client.authenticate()
    client.send(PublishFrame(topic="a.b", data=1, message_type="token", ref="p1"))
    assert isinstance((await client.next())[0], PublishedFrame)
    assert plain.sent("/v1/topics/a.b/messages") == [{"type": "token", "data": 1}]


async def test_presence_goes_as_a_publish(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(PresenceUpdateFrame(topic="a.b", data={"status": "typing"}))
    await until(lambda: peer.sent("/v1/topics/a.b/messages"))
    assert peer.sent("/v1/topics/a.b/messages") == [
        {"type": "presence.update", "data": {"status": "typing"}}
    ]
    client.send(PresenceUpdateFrame(data={"status": "idle"}, ref="7"))
    (frame,) = await client.next()
    assert isinstance(frame, ErrorFrame)
    assert (frame.code, frame.ref) == ("unsupported", "7")


async def test_a_ping_goes_nowhere(client: Client, peer: Peer) -> None:
    await client.authenticate()
    client.send(PingFrame())
    client.send(publish("m1", "p1"))
    await client.next()
    assert len(peer.requests) == 2


# ---------------------------------------------------------------- secrets


async def test_no_url_and_no_log_holds_a_token_or_a_payload(
    client: Client, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    stream.write(event("message", {"data": "the-payload"}), message(1, data="the-payload"))
    await client.next()
    assert TOKEN not in caplog.text
    assert "the-payload" not in caplog.text
    assert all(TOKEN not in str(request.url) for request in peer.requests)
    assert TOKEN not in repr(client.transport)


# ---------------------------------------------------------------- who this client is


async def test_the_client_is_known_by_the_id_of_its_stream(client: Client, peer: Peer) -> None:
    info = {**INFO, "expires_at": 9_000, "server_time": 1_000}
    peer.answer("/v1/session", httpx.Response(200, json=info))
    assert (await client.authenticate()).client_id == "cl_1"
    client.clock.time += 5

    def stream(request: httpx.Request) -> httpx.Response:
        opened = Stream(request)
        peer.streams.put_nowait(opened)
        headers = {"Content-Type": "text/event-stream", "Client-Id": "cl_2"}
        return httpx.Response(200, headers=headers, stream=opened)

    peer.answer("/v1/subscribe", stream)
    await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    (said,) = await client.next()
    assert isinstance(said, AuthOkFrame)
    assert (said.client_id, said.limits) == ("cl_2", Limits(publish_rate=10))
    assert (said.expires_at, said.server_time) == (9_000, 6_000)
    assert said.ref is None


async def test_an_event_of_an_id_and_a_comment_is_no_message(
    client: Client, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await client.authenticate()
    stream = await client.subscribe(SubscribeFrame(topics=["a.b"], ref="s1"))
    for chunk in (b"id: 7-a.b@7\n: keepalive\n\n", b": x\nid: 8\n\n", b"event: message\n\n"):
        stream.queue.put_nowait(chunk)
    stream.queue.put_nowait(message(9))
    (frame,) = await client.next()
    assert numbers([frame]) == [9]
    assert "left out" not in caplog.text


async def test_what_of_a_large_run_got_no_answer_is_left_to_be_sent_again(peer: Peer) -> None:
    async with asyncio.timeout(20):
        client = Client(peer, operation_timeout=5)
        await client.transport.open()
        await client.authenticate()
        count = 30  # of 250 KB each: more than one request takes

        def first(request: httpx.Request) -> httpx.Response:
            ids = [one["id"] for one in json.loads(request.content)["messages"]]
            return httpx.Response(200, json={"results": [{"id": i, "timestamp": 1} for i in ids]})

        peer.answer("/v1/messages:batch", first, *[httpx.ReadError("cut")] * 8)
        client.send(
            *(
                PublishFrame(
                    message=Publication(topic="a.b", type="t", data="x" * 250_000, id=f"m{n}"),
                    ref=f"p{n}",
                )
                for n in range(count)
            )
        )
        await client.closed()
        assert {type(frame) for frame in client.came} == {PublishedFrame}
        answered = [frame.ref for frame in client.came if isinstance(frame, PublishedFrame)]
        assert answered == [f"p{n}" for n in range(len(answered))]
        assert 0 < len(answered) < count
        await client.transport.close()
