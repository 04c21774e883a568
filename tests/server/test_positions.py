"""`POST /v1/positions` of a real server: positions of logs, and waiting requests."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_server.instruments import Reading
from pubsub_server.shared.wall_clock import now_ms
from pubsub_server.testing import RunningServer, running_server
from tests.cluster.waiting import until
from tests.server.test_rest import api, problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

BOUND = 60
HOLD = 30
"""Maximum seconds of a held request."""
PATH = "/v1/positions"


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    limits = {"publish_rate_user": 1e6, "publish_rate_service": 1e6, "linger_timeout": 100}
    async with running_server(**limits) as running:
        yield running


@pytest.fixture
async def rest(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with api(server, server.service_token()) as client:
        yield client


async def publish(rest: httpx.AsyncClient, topic: str, count: int = 1, **more: Any) -> list[int]:
    found: list[int] = []
    for n in range(count):
        answer = await rest.post(f"/v1/topics/{topic}/messages", json={"data": n, **more})
        assert answer.status_code == 201, answer.text
        found.append(answer.json().get("seq"))
    return found


async def ask(rest: httpx.AsyncClient, *topics: str, **more: Any) -> dict[str, dict[str, Any]]:
    answer = await rest.post(PATH, json={"topics": topics, **more}, timeout=BOUND)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    names = [each["topic"] for each in body["positions"]]
    assert names == sorted(names)
    assert body["timestamp"] > 0
    return {each["topic"]: each for each in body["positions"]}


async def held(server: RunningServer, count: int) -> None:
    """Wait until the server holds this number of requests."""

    def reading() -> object:
        (found,) = (each for each in server.hub.instruments() if each.name == "held_requests")
        assert isinstance(found, Reading)
        return found.read()

    async with asyncio.timeout(BOUND):
        await until(reading, count)


async def test_each_topic_has_the_positions_of_its_oldest_and_its_newest_message(
    rest: httpx.AsyncClient,
) -> None:
    x = await publish(rest, "demo.x", 3)
    y = await publish(rest, "demo.y", 120)
    found = await ask(rest, "demo.y", "demo.x", "demo.x")
    assert found == {
        "demo.x": {"topic": "demo.x", "first": x[0], "last": x[-1]},
        "demo.y": {"topic": "demo.y", "first": y[20], "last": y[-1]},
    }


async def test_a_topic_without_a_log_is_at_position_0_where_it_is_named(
    rest: httpx.AsyncClient,
) -> None:
    await publish(rest, "demo.fleeting", ttl=0)
    found = await ask(rest, "demo.never", "demo.fleeting", "demo.*")
    empty = {"first": 1, "last": 0}
    assert found == {name: {"topic": name, **empty} for name in ("demo.never", "demo.fleeting")}


async def test_a_pattern_gives_what_has_a_log_and_may_be_read(
    server: RunningServer, rest: httpx.AsyncClient
) -> None:
    await publish(rest, "chat.session.abc")
    await publish(rest, "chat.session.other")
    token = server.token(sessions_owned=["abc"])
    async with api(server, token) as alice:
        found = await ask(alice, "chat.session.*")
    assert list(found) == ["chat.session.abc"]


async def test_expired_messages_are_not_retained(
    server: RunningServer, rest: httpx.AsyncClient
) -> None:
    first, last = await publish(rest, "demo.x", 2, ttl=3600)
    server.hub.core.backplane.logs.evict("demo.x", log_too=False)
    assert (await ask(rest, "demo.x"))["demo.x"] == {
        "topic": "demo.x",
        "first": last + 1,
        "last": last,
    }
    assert first == last - 1


async def test_a_time_is_the_position_of_the_first_message_that_is_not_older(
    rest: httpx.AsyncClient,
) -> None:
    seqs: list[int] = []
    times: list[int] = []
    for n in range(5):
        answer = await rest.post("/v1/topics/demo.x/messages", json={"data": n})
        seqs.append(answer.json()["seq"])
        times.append(answer.json()["timestamp"])
        # Wait, because messages of the same millisecond have equal timestamps.
        await until(lambda: time.time_ns() // 1_000_000 > times[-1])
    for seq, then in zip(seqs, times, strict=True):
        assert (await ask(rest, "demo.x", at=then))["demo.x"]["at"] == seq
    found = await ask(rest, "demo.x", "demo.never", at=times[-1] + 1)
    assert (found["demo.x"]["at"], found["demo.never"]["at"]) == (seqs[-1] + 1, 1)
    assert (await ask(rest, "demo.x", at=0))["demo.x"]["at"] == seqs[0]


@pytest.mark.parametrize(
    ("after", "topics"),
    [({}, ["demo.x"]), ({"demo.x": 1}, ["demo.x"]), ({}, ["demo.*"]), ({}, ["demo.never"])],
)
async def test_a_position_that_has_already_advanced_is_answered_immediately(
    rest: httpx.AsyncClient, after: dict[str, int], topics: list[str]
) -> None:
    await publish(rest, "demo.x")
    async with asyncio.timeout(BOUND):
        assert await ask(rest, *topics, after=after, wait_ms=30_000)


async def test_the_answer_is_held_until_a_topic_moves(
    server: RunningServer, rest: httpx.AsyncClient
) -> None:
    last = (await publish(rest, "demo.x"))[-1]
    waiting = asyncio.create_task(
        ask(rest, "demo.x", "demo.y", after={"demo.x": last, "demo.y": 0}, wait_ms=30_000)
    )
    await held(server, 1)
    await publish(rest, "demo.z")
    await publish(rest, "demo.x", ttl=0)
    await held(server, 1)
    await publish(rest, "demo.x")
    async with asyncio.timeout(BOUND):
        assert (await waiting)["demo.x"]["last"] == last + 1
    await held(server, 0)


async def test_a_new_topic_of_a_pattern_is_announced_to_permitted_clients(
    server: RunningServer, rest: httpx.AsyncClient
) -> None:
    async with api(server, server.token(sessions_owned=["abc"])) as alice:
        waiting = asyncio.create_task(ask(alice, "chat.session.*", after={}, wait_ms=30_000))
        await held(server, 1)
        await publish(rest, "chat.session.other")
        await held(server, 1)
        await publish(rest, "chat.session.abc")
        async with asyncio.timeout(BOUND):
            assert list(await waiting) == ["chat.session.abc"]


async def test_the_answer_comes_when_the_time_is_over(rest: httpx.AsyncClient) -> None:
    last = (await publish(rest, "demo.x"))[-1]
    async with asyncio.timeout(BOUND):
        found = await ask(rest, "demo.x", after={"demo.x": last}, wait_ms=20)
    assert found["demo.x"]["last"] == last


async def test_a_held_request_ends_with_its_token(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ttl = 3_600
    # The server meets the token shortly before its end.
    monkeypatch.setattr(server.hub.core, "today", lambda: now_ms() + ttl * 1_000 - 200)
    async with api(server, server.token(ttl=ttl)) as alice, asyncio.timeout(HOLD / 2):
        found = await ask(alice, "demo.x", after={"demo.x": 0}, wait_ms=HOLD * 1_000)
        assert found["demo.x"]["last"] == 0


async def test_the_held_request_of_a_disconnected_client_ends(
    server: RunningServer, rest: httpx.AsyncClient
) -> None:
    async with api(server, server.service_token()) as other:
        body = {"topics": ["demo.x"], "after": {"demo.x": 0}, "wait_ms": 30_000}
        waiting = asyncio.create_task(other.post(PATH, json=body, timeout=BOUND))
        await held(server, 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        await held(server, 0)
    # Other requests still wait for the same topics.
    waiting_ = asyncio.create_task(ask(rest, "demo.x", after={"demo.x": 0}, wait_ms=30_000))
    await held(server, 1)
    await publish(rest, "demo.x")
    async with asyncio.timeout(BOUND):
        assert (await waiting_)["demo.x"]["last"] > 0


async def test_a_shutdown_answers_what_is_held_at_once() -> None:
    async with (
        running_server(drain_timeout=60_000) as ending,
        api(ending, ending.service_token()) as rest,
    ):
        waiting = asyncio.create_task(ask(rest, "demo.x", after={"demo.x": 0}, wait_ms=30_000))
        await held(ending, 1)
        async with asyncio.timeout(BOUND):
            await ending.server.stop()
            assert (await waiting)["demo.x"]["last"] == 0


async def test_the_held_requests_of_a_caller_are_limited() -> None:
    more = {"after": {"demo.x": 0}, "wait_ms": 30_000}
    async with (
        running_server(held_per_user=2) as server,
        api(server, server.service_token()) as rest,
        api(server, server.service_token("other")) as other,
    ):
        waiting = [asyncio.create_task(ask(rest, "demo.x", **more)) for _ in range(2)]
        await held(server, 2)
        answer = await rest.post(PATH, json={"topics": ["demo.x"], **more})
        assert problem(answer, 429, "connection_limit")["field"] == "wait_ms"
        assert answer.headers["Retry-After"] == "1"
        # A request without a wait is answered, and so are others.
        await ask(rest, "demo.x")
        waiting.append(asyncio.create_task(ask(other, "demo.x", **more)))
        await held(server, 3)
        await publish(rest, "demo.x")
        async with asyncio.timeout(BOUND):
            await asyncio.gather(*waiting)


async def test_a_topic_or_pattern_that_may_not_be_read_is_refused_by_name(
    server: RunningServer,
) -> None:
    async with api(server, server.token()) as alice:
        for name in ("chat.session.abc", "internal.*"):
            answer = await alice.post(PATH, json={"topics": ["user.alice.notify", name]})
            body = problem(answer, 403, "forbidden")
            assert (body["topic"], body["field"]) == (name, "topics")


async def test_a_refused_read_names_the_open_topics_of_a_development_server(
    server: RunningServer,
) -> None:
    async with api(server, server.token()) as alice:
        answer = await alice.post(PATH, json={"topics": ["internal.*"]})
        assert "`demo.`" in problem(answer, 403, "forbidden")["detail"]


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "invalid_frame", "topics"),
        ({"topics": []}, "invalid_frame", "topics"),
        ({"topics": "demo.x"}, "invalid_frame", "topics"),
        ({"topics": ["demo.x"] * 1001}, "invalid_frame", "topics"),
        ({"topics": ["demo.x", "a..b"]}, "invalid_topic", "topics.1"),
        ({"topics": ["demo.x"], "after": []}, "invalid_frame", "after"),
        ({"topics": ["demo.x"], "after": {"demo": "1"}}, "invalid_frame", "after.demo"),
        ({"topics": ["demo.x"], "after": {"demo": -1}}, "invalid_frame", "after.demo"),
        (
            {"topics": ["demo.x"], "after": {f"t{n}": 1 for n in range(10_001)}},
            "invalid_frame",
            "after",
        ),
        ({"topics": ["demo.x"], "at": "now"}, "invalid_frame", "at"),
        ({"topics": ["demo.x"], "at": 2**53}, "invalid_frame", "at"),
        ({"topics": ["demo.x"], "wait_ms": 30_001}, "invalid_frame", "wait_ms"),
        ({"topics": ["demo.x"], "wait_ms": -1}, "invalid_frame", "wait_ms"),
        ({"topics": ["demo.x"], "wait_ms": True}, "invalid_frame", "wait_ms"),
    ],
)
async def test_bad_input_is_refused_by_field(
    rest: httpx.AsyncClient, body: dict[str, object], code: str, field: str
) -> None:
    answer = await rest.post(PATH, json=body)
    assert problem(answer, 400, code)["field"] == field


async def test_a_request_without_a_token_reveals_nothing(server: RunningServer) -> None:
    async with api(server) as nobody:
        problem(await nobody.post(PATH, json={"topics": ["demo.x"]}), 401, "unauthenticated")


async def test_a_held_request_keeps_nothing_of_its_body(
    server: RunningServer, rest: httpx.AsyncClient
) -> None:
    gc.collect()
    before = len(gc.get_objects())
    more: dict[str, Any] = {"after": {"demo.x": 0}, "wait_ms": 30_000}
    waiting = asyncio.create_task(ask(rest, "demo.x", **more, other=[[]] * 100_000))
    await held(server, 1)
    gc.collect()
    assert len(gc.get_objects()) - before < 10_000
    await publish(rest, "demo.x")
    assert await waiting
