"""Event streams of a real server: bytes, resuming, expiry, slow readers, limits."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from httpx_sse import EventSource, ServerSentEvent

from pubsub_server.shared.wall_clock import now_ms
from pubsub_server.testing import RunningServer, running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

TOPIC = "chat.session.abc"
PATIENCE = 60


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with running_server(publish_rate_service=1e6) as running:
        yield running


@dataclass
class Stream:
    response: httpx.Response
    events: AsyncIterator[ServerSentEvent]

    async def next(self) -> ServerSentEvent:
        async with asyncio.timeout(PATIENCE):
            # httpx-sse returns an empty event for a comment after an id.
            while not (event := await anext(self.events)).data:
                pass
            return event

    async def until(self, name: str) -> Any:
        while (event := await self.next()).event != name:
            pass
        return json.loads(event.data)

    async def ends(self) -> None:
        async with asyncio.timeout(PATIENCE):
            async for _ in self.events:
                pass


def reader(server: RunningServer, **more: Any) -> str:
    return server.token("alice", sessions_owned=["abc"], **more)


@asynccontextmanager
async def stream(
    server: RunningServer,
    token: str | None = None,
    query: dict[str, str] | None = None,
    *,
    body: object = None,
    headers: dict[str, str] | None = None,
    **more: str,
) -> AsyncGenerator[Stream, None]:
    head = {"Authorization": f"Bearer {token or reader(server)}", **(headers or {})}
    async with httpx.AsyncClient(base_url=server.http, headers=head, timeout=PATIENCE) as client:
        method = "GET" if body is None else "POST"
        request = client.stream(
            method, "/v1/subscribe", params={**(query or {}), **more}, json=body
        )
        async with request as response:
            if response.status_code != 200:
                await response.aread()
            yield Stream(response, EventSource(response).aiter_sse())


async def publish(server: RunningServer, data: object, topic: str = TOPIC) -> dict[str, Any]:
    headers = {"Authorization": server.service_token()}
    async with http_client(base_url=server.http, headers=headers) as client:
        answer = await client.post(f"/v1/topics/{topic}/messages", json={"data": data})
        assert answer.status_code == 201, answer.text
        body: dict[str, Any] = answer.json()
        return body


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def streams(server: RunningServer) -> int:
    return server.stats.connections["event_stream"]


def problem(opened: Stream, status: int, code: str) -> dict[str, Any]:
    assert opened.response.status_code == status, opened.response.text
    body: dict[str, Any] = opened.response.json()
    assert body["code"] == code
    return body


async def test_a_stream_forbids_buffering_and_storing(server: RunningServer) -> None:
    async with stream(server, topics=TOPIC) as opened:
        headers = opened.response.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in headers["cache-control"]
        assert headers["x-accel-buffering"] == "no"
        assert headers["access-control-allow-origin"] == "*"
        assert "content-length" not in headers


async def test_every_message_has_an_id_to_resume_from(server: RunningServer) -> None:
    async with stream(server, topics=TOPIC) as opened:
        await opened.until("subscribed")
        answer = await publish(server, 1)
        while (event := await opened.next()).event != "message":
            pass
        assert event.id == f"{answer['timestamp']}-{TOPIC}@{answer['seq']}"


async def test_last_event_id_resumes_its_topic_by_position_and_the_others_by_time(
    server: RunningServer,
) -> None:
    token = server.token("alice", sessions_owned=["abc", "other"])
    first = await publish(server, 0)
    mark = f"{first['timestamp']}-{TOPIC}@{first['seq']}"
    await publish(server, 1)
    await publish(server, "x", "chat.session.other")
    topics = f"{TOPIC},chat.session.other"
    headers = {"Last-Event-ID": mark}
    async with stream(server, token, topics=topics, since="1", headers=headers) as opened:
        history = (await opened.until("subscribed"))["history"]
        assert [m["data"] for m in history] == [1, "x"]
    body = {"subscriptions": [{"topics": [TOPIC]}, {"topics": ["chat.session.other"]}]}
    async with stream(server, token, body=body, headers=headers) as opened:
        found = [(await opened.until("subscribed"))["history"] for _ in range(2)]
        assert [[m["data"] for m in history] for history in found] == [[1], ["x"]]


@pytest.mark.parametrize("ahead", ["after", "since"])
async def test_a_later_start_in_the_request_overrides_last_event_id(
    server: RunningServer, ahead: str
) -> None:
    first = await publish(server, 0)
    second = await publish(server, 1)
    # The next message must have a later timestamp.
    await eventually(lambda: now_ms() > second["timestamp"])
    await publish(server, 2)
    after, since = {TOPIC: second["seq"]}, second["timestamp"]
    body = {"subscriptions": [{"topics": [TOPIC], ahead: after if ahead == "after" else since}]}
    topic = f"-{TOPIC}@{first['seq']}" if ahead == "after" else ""
    headers = {"Last-Event-ID": f"{first['timestamp'] - 1}{topic}"}
    async with stream(server, body=body, headers=headers) as opened:
        history = (await opened.until("subscribed"))["history"]
        assert [message["data"] for message in history] == [2]


async def test_a_resumed_stream_gets_all_missed_messages_and_not_only_its_history(
    server: RunningServer,
) -> None:
    first = await publish(server, 0)
    for n in (1, 2):
        await publish(server, n)
    headers = {"Last-Event-ID": f"{first['timestamp']}-{TOPIC}@{first['seq']}"}
    async with stream(server, topics=TOPIC, history="1", headers=headers) as opened:
        answer = await opened.until("subscribed")
        assert [message["data"] for message in answer["history"]] == [1, 2]
        assert "truncated" not in answer


@pytest.mark.parametrize("mark", ["", "x", "1-a", "1-a@", "-@", "1-a..b@2", "1-*@2", "x" * 600])
async def test_a_last_event_id_of_another_form_is_ignored(server: RunningServer, mark: str) -> None:
    await publish(server, 0)
    async with stream(server, topics=TOPIC, since="1", headers={"Last-Event-ID": mark}) as opened:
        assert len((await opened.until("subscribed"))["history"]) == 1


async def test_each_subscription_of_a_post_has_its_own_answer(server: RunningServer) -> None:
    token = server.token("alice", sessions_owned=["abc"], agents=["bot1"])
    answers = [await publish(server, n) for n in range(3)]
    body = {
        "subscriptions": [
            {"ref": "1", "topics": [TOPIC], "after": {TOPIC: answers[0]["seq"]}},
            {"ref": "2", "topics": ["agent.**"]},
            {"ref": "3", "topics": [TOPIC, "chat.session.other"], "history": 1},
        ]
    }
    async with stream(server, token, body=body) as opened:
        one, two, three = [await opened.until("subscribed") for _ in range(3)]
        assert [each["ref"] for each in (one, two, three)] == ["1", "2", "3"]
        assert [m["data"] for m in one["history"]] == [1, 2]
        assert two["topics"] == ["agent.**"]
        assert [m["data"] for m in three["history"]] == [2]
        assert [denied["topic"] for denied in three["denied"]] == ["chat.session.other"]
        await publish(server, "once")
        assert (await opened.until("message"))["data"] == "once"


async def test_a_stream_that_is_cut_between_its_answers_misses_no_later_one(
    server: RunningServer,
) -> None:
    token = server.token("alice", sessions_owned=["abc"], agents=["bot1"])
    await publish(server, "of the later one", "agent.bot1.events")
    subscriptions = [{"topics": [topic], "history": 9} for topic in (TOPIC, "agent.bot1.events")]
    body = {"subscriptions": subscriptions}
    async with stream(server, token, body=body) as opened:
        cut = await opened.next()
        last = await opened.next()
    assert cut.json().keys() == last.json().keys()
    for event, expected in ((cut, ["of the later one"]), (last, [])):
        headers = {"Last-Event-ID": event.id} if event.id else {}
        async with stream(server, token, body=body, headers=headers) as opened:
            await opened.until("subscribed")
            history = (await opened.until("subscribed"))["history"]
            assert [message["data"] for message in history] == expected


async def test_presence_is_sent_unless_refused_and_membership_is_asked_for(
    server: RunningServer,
) -> None:
    async with stream(server, topics=TOPIC) as opened:
        assert (await opened.until("presence"))["members"] == []
        async with stream(server, topics=TOPIC, presence="true") as member:
            assert len((await member.until("presence"))["members"]) == 1
            while not (shown := (await opened.until("presence"))["members"]):
                pass
            assert shown[0]["user_id"] == "alice"
    async with stream(server, topics=TOPIC, presence="false") as opened:
        await publish(server, 1)
        names = [(await opened.next()).event for _ in range(2)]
        assert names == ["subscribed", "message"]


async def test_a_stream_that_replaces_another_is_the_same_member_and_ends_it(
    server: RunningServer,
) -> None:
    body: dict[str, object] = {"subscriptions": [{"topics": [TOPIC]}], "presence": True}
    async with stream(server, body=body) as first:
        own = first.response.headers["Client-Id"]
        await first.until("presence")
        async with stream(server, body={**body, "client_id": own}) as second:
            assert second.response.headers["Client-Id"] == own
            members = (await second.until("presence"))["members"]
            assert [member["client_id"] for member in members] == [own]
            assert (await first.until("error"))["code"] == "replaced"
            await first.ends()
            assert streams(server) == 1


async def test_a_stream_gets_the_id_that_the_session_named(server: RunningServer) -> None:
    async with http_client(base_url=server.http) as http:

        async def session(token: str, **query: str) -> str:
            headers = {"Authorization": f"Bearer {token}"}
            answer = await http.get("/v1/session", params=query, headers=headers)
            named: str = answer.json()["client_id"]
            return named

        named = await session(reader(server))
        body: dict[str, object] = {"subscriptions": [{"topics": [TOPIC]}], "client_id": named}
        async with stream(server, body={**body, "presence": True}) as opened:
            assert opened.response.headers["Client-Id"] == named
            members = (await opened.until("presence"))["members"]
            assert [member["client_id"] for member in members] == [named]
        # Only the identity to which an id was issued can resume it.
        assert await session(reader(server), client_id=named) == named
        assert await session(server.token("mallory"), client_id=named) != named
        assert await session(reader(server), client_id="cl_made_up") != "cl_made_up"
        token = {"Authorization": f"Bearer {reader(server)}"}
        long = await http.get("/v1/session", params={"client_id": "c" * 65}, headers=token)
        assert (long.status_code, long.json()["field"]) == (400, "client_id")


async def test_no_user_can_replace_the_stream_of_another(server: RunningServer) -> None:
    body: dict[str, object] = {"subscriptions": [{"topics": [TOPIC]}], "presence": True}
    async with stream(server, body=body) as first:
        own = first.response.headers["Client-Id"]
        await first.until("presence")
        mallory = server.token("mallory", sessions_owned=["abc"])
        async with stream(server, mallory, body={**body, "client_id": own}) as second:
            assert second.response.headers["Client-Id"] != own
            members = (await second.until("presence"))["members"]
            assert sorted(member["user_id"] for member in members) == ["alice", "mallory"]
            assert streams(server) == 2


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ({}, "invalid_option", "topics"),
        ({"topics": ""}, "invalid_option", "topics"),
        ({"topics": "a..b"}, "invalid_topic", "topics"),
        ({"topics": TOPIC, "since": "x"}, "invalid_option", "since"),
        ({"topics": TOPIC, "history": "10001"}, "invalid_option", "history"),
        ({"topics": TOPIC, "presence": "maybe"}, "invalid_option", "presence"),
        ({"topics": ",".join(f"t{n}" for n in range(1001))}, "invalid_frame", "topics"),
    ],
)
async def test_an_absurd_query_is_refused_by_name(
    server: RunningServer, query: dict[str, str], code: str, field: str
) -> None:
    async with stream(server, None, query) as opened:
        assert problem(opened, 400, code)["field"] == field
    assert streams(server) == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "subscriptions"),
        ({"subscriptions": []}, "subscriptions"),
        ({"subscriptions": [7]}, "subscriptions.0"),
        ({"subscriptions": [{"topics": [TOPIC]}, {}]}, "subscriptions.1.topics"),
        ({"subscriptions": [{"topics": [TOPIC], "since": -1}]}, "subscriptions.0.since"),
        ({"subscriptions": [{"topics": [TOPIC]}], "presence": 1}, "presence"),
        ({"subscriptions": [{"topics": [TOPIC]}], "client_id": 7}, "client_id"),
        ({"subscriptions": [{"topics": [TOPIC]}], "client_id": "c" * 65}, "client_id"),
        (
            {
                "subscriptions": 10 * [{"topics": [f"t{n}" for n in range(1000)]}]
                + [{"topics": ["!"]}]
            },
            "subscriptions.10.topics",
        ),
    ],
)
async def test_an_absurd_body_is_refused_by_field(
    server: RunningServer, body: object, field: str
) -> None:
    async with stream(server, body=body) as opened:
        assert problem(opened, 400, "invalid_frame")["field"] == field


async def test_a_stream_keeps_nothing_of_the_body_that_opened_it(server: RunningServer) -> None:
    gc.collect()
    before = len(gc.get_objects())
    body = {"subscriptions": [{"topics": [TOPIC]}], "other": [[] for _ in range(100_000)]}
    async with stream(server, body=body) as opened:
        await opened.until("subscribed")
        body.clear()
        gc.collect()
        assert len(gc.get_objects()) - before < 10_000


async def test_a_stream_of_nothing_allowed_is_refused_and_of_something_is_opened(
    server: RunningServer,
) -> None:
    async with stream(server, topics="chat.session.other,agent.bot1.**") as opened:
        problem(opened, 403, "forbidden")
    async with stream(server, topics=f"chat.session.other,a..b,{TOPIC}") as opened:
        subscribed = await opened.until("subscribed")
        assert subscribed["topics"] == [TOPIC]
        assert [each["code"] for each in subscribed["denied"]] == ["invalid_topic", "forbidden"]


async def test_a_refused_stream_names_the_open_topics_of_a_development_server(
    server: RunningServer,
) -> None:
    async with stream(server, topics="chat.session.other") as opened:
        assert "`demo.`" in problem(opened, 403, "forbidden")["detail"]


async def test_without_a_good_token_no_stream_opens(server: RunningServer) -> None:
    async with stream(server, "x", topics=TOPIC) as opened:
        problem(opened, 401, "token_invalid")
    async with stream(server, reader(server, ttl=-1), topics=TOPIC) as opened:
        problem(opened, 401, "token_expired")
    assert streams(server) == 0


async def test_a_stream_over_http_1_0_is_refused_with_the_setting_of_nginx(
    server: RunningServer,
) -> None:
    host, port = server.http.removeprefix("http://").split(":")
    source, writer = await asyncio.open_connection(host, int(port))
    head = f"GET /v1/subscribe?topics={TOPIC} HTTP/1.0\r\nAuthorization: {reader(server)}"
    writer.write(f"{head}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        answer = await source.read()
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert b"in nginx, set `proxy_http_version 1.1`" in answer
    writer.close()


async def test_a_token_that_ends_is_announced_and_ends_the_stream() -> None:
    # The notice comes before the end on a busy machine, too.
    async with running_server(expiring_notice=2_000) as server:
        async with stream(server, reader(server, ttl=3.0), topics=TOPIC) as opened:
            notice = await opened.until("auth.expiring")
            assert 0 < notice["expires_in"] <= 2_000
            assert (await opened.until("error"))["code"] == "token_expired"
            await opened.ends()
        await eventually(lambda: streams(server) == 0)


async def test_a_reader_that_goes_is_noticed_at_once(server: RunningServer) -> None:
    async with stream(server, topics=TOPIC) as opened:
        await opened.until("subscribed")
        assert streams(server) == 1
    await eventually(lambda: streams(server) == 0)
    assert server.stats.subscriptions == 0


async def test_a_reader_that_is_cut_without_a_close_is_noticed_too(server: RunningServer) -> None:
    host, port = server.http.removeprefix("http://").split(":")
    source, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET /v1/subscribe?topics={TOPIC} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {reader(server)}\r\n\r\n".encode()
    )
    async with asyncio.timeout(PATIENCE):
        await source.readuntil(b"event: subscribed")
    writer.transport.abort()
    await eventually(lambda: streams(server) == 0)


async def test_a_reader_that_does_not_read_is_cut_and_others_continue() -> None:
    async with running_server(
        publish_rate_service=1e6, send_queue_bytes=1_000_000, drain_timeout=300
    ) as server:
        host, port = server.http.removeprefix("http://").split(":")
        source, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(
            f"GET /v1/subscribe?topics={TOPIC} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: {reader(server)}\r\n\r\n".encode()
        )
        await source.readuntil(b"\r\n\r\n")
        async with stream(server, topics=TOPIC) as healthy:
            await healthy.until("subscribed")
            sent = 0
            async with asyncio.timeout(50):
                while server.stats.slow_consumers == 0:
                    await publish(server, "x" * 200_000)
                    sent += 1
                    assert len((await healthy.until("message"))["data"]) == 200_000
            assert server.stats.slow_consumers == 1
            await eventually(lambda: streams(server) == 1)
            await publish(server, "on")
            assert (await healthy.until("message"))["data"] == "on"
            listener = server.server._http_listener
            assert listener is not None
            await eventually(lambda: listener.connections.open == 1)
        writer.close()


async def test_streams_count_as_connections_of_their_user() -> None:
    async with running_server(connections_per_user=2) as server:
        async with stream(server, topics=TOPIC) as one, stream(server, topics=TOPIC) as two:
            await one.until("subscribed")
            await two.until("subscribed")
            async with stream(server, topics=TOPIC) as three:
                problem(three, 429, "connection_limit")
                assert int(three.response.headers["retry-after"]) >= 1
        await eventually(lambda: streams(server) == 0)
        async with stream(server, topics=TOPIC) as again:
            await again.until("subscribed")


async def test_a_stream_ends_cleanly_when_the_server_shuts_down() -> None:
    async with running_server() as server, stream(server, topics=TOPIC) as opened:
        await opened.until("subscribed")
        stopping = asyncio.create_task(server.server.stop())
        assert (await opened.until("error"))["code"] == "going_away"
        await opened.ends()
        await stopping


async def test_a_keepalive_comment_comes_while_nothing_happens() -> None:
    async with running_server(sse_keepalive=50) as server:
        headers = {"Authorization": reader(server)}
        async with (
            http_client(base_url=server.http, headers=headers) as client,
            client.stream("GET", "/v1/subscribe", params={"topics": TOPIC}) as response,
        ):
            seen = 0
            async with asyncio.timeout(PATIENCE):
                async for line in response.aiter_lines():
                    seen += line == ": keepalive"
                    if seen == 3:
                        break
            assert seen == 3


async def test_every_message_reaches_every_stream_in_order(
    server: RunningServer,
) -> None:
    async def read(number: int) -> list[int]:
        async with stream(server, topics=TOPIC, presence="false") as opened:
            await opened.until("subscribed")
            ready.release()
            async with asyncio.timeout(40):
                return [(await opened.until("message"))["data"] for _ in range(200)]

    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(read(n)) for n in range(20)]
    for _ in tasks:
        await ready.acquire()
    headers = {"Authorization": server.service_token()}
    async with http_client(base_url=server.http, headers=headers) as client:
        for start in range(0, 200, 50):
            batch = [{"topic": TOPIC, "data": n} for n in range(start, start + 50)]
            await client.post("/v1/messages:batch", json={"messages": batch})
    assert await asyncio.gather(*tasks) == [list(range(200))] * 20
