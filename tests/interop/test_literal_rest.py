"""HIP-56's REST API, request by request, with plain httpx."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pubsub_server.settings.config import Settings

if TYPE_CHECKING:
    import httpx

    from tests.interop.peer import Json, Node

TOPIC = "agent.bot1.events"


def reader(node: Node) -> str:
    return node.iam.token("alice", agents=["bot1"])


@pytest.mark.statement("H-008", "H-070")
async def test_a_post_returns_id_and_timestamp_and_is_delivered(node: Node) -> None:
    async with node.socket(reader(node)) as socket, node.rest(node.iam.service()) as rest:
        await socket.subscribe(TOPIC)
        body = {"type": "agent.status", "data": {"status": "thinking"}, "ttl": 60}
        answer = await rest.post(f"/v1/topics/{TOPIC}/messages", json=body)
        assert answer.status_code in {200, 201, 202}
        assert isinstance(answer.json()["id"], str)
        assert isinstance(answer.json()["timestamp"], int)
        message = await socket.message()
    assert (message["id"], message["timestamp"]) == (
        answer.json()["id"],
        answer.json()["timestamp"],
    )
    assert (message["type"], message["data"], message["ttl"]) == tuple(body.values())


@pytest.mark.statement("H-070")
@pytest.mark.parametrize(
    "body",
    [{"type": "token"}, {"type": 7, "data": {}}, {"type": "token", "data": {}, "ttl": -1}, [1]],
    ids=["no data", "type is a number", "negative ttl", "a list"],
)
async def test_a_post_with_a_missing_or_mistyped_field_is_rejected(
    node: Node, body: object
) -> None:
    async with node.rest(node.iam.service()) as rest:
        answer = await rest.post(f"/v1/topics/{TOPIC}/messages", json=body)
    assert answer.status_code in {400, 422}
    assert_problem(answer)


@pytest.mark.statement("H-071", "H-098")
async def test_a_post_needs_a_service_token(node: Node) -> None:
    body = {"type": "token", "data": {}}
    statuses: list[int] = []
    for token in (None, reader(node), node.iam.service()):
        async with node.rest(token) as rest:
            answer = await rest.post(f"/v1/topics/{TOPIC}/messages", json=body)
            statuses.append(answer.status_code)
    assert statuses[:2] == [401, 403]
    assert statuses[2] < 300


async def history(rest: httpx.AsyncClient, **query: object) -> Json:
    params = {name: str(value) for name, value in query.items()}
    answer = await rest.get(f"/v1/topics/{TOPIC}/history", params=params)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert isinstance(body, dict)
    return body


@pytest.mark.statement("H-072")
async def test_history_returns_the_newest_fifty_by_default(node: Node) -> None:
    for n in range(60):
        await node.publish(TOPIC, {"n": n})
    async with node.rest(reader(node)) as rest:
        page = await history(rest)
        assert [m["data"]["n"] for m in page["messages"]] == list(range(10, 60))
        assert page["has_more"] is True
        everything = await history(rest, limit=500)
        assert [m["data"]["n"] for m in everything["messages"]] == list(range(60))
        assert everything["has_more"] is False
        refused = await rest.get(f"/v1/topics/{TOPIC}/history", params={"limit": 501})
        assert refused.status_code in {400, 422}


@pytest.mark.statement("H-072")
async def test_before_pages_backwards_through_the_whole_history(node: Node) -> None:
    for n in range(10):
        await node.publish(TOPIC, {"n": n})
    seen: list[int] = []
    async with node.rest(reader(node)) as rest:
        page = await history(rest, limit=4)
        while True:
            seen = [m["data"]["n"] for m in page["messages"]] + seen
            if not page["has_more"]:
                break
            page = await history(rest, limit=4, before=page["messages"][0]["id"])
    assert seen == list(range(10))


@pytest.mark.statement("H-072")
async def test_since_returns_only_newer_messages(node: Node) -> None:
    answers = [await node.publish(TOPIC, {"n": n}) for n in range(3)]
    async with node.rest(reader(node)) as rest:
        newest = answers[-1]["timestamp"]
        assert (await history(rest, since=newest))["messages"] == []
        found = [m["id"] for m in (await history(rest, since=newest - 1))["messages"]]
    assert answers[-1]["id"] in found


def test_the_sizes_of_pages_are_those_of_hip_56() -> None:
    settings = Settings()
    assert (settings.history_page_default, settings.history_page_max) == (50, 500)


@pytest.mark.statement("H-073")
async def test_presence_returns_members(node: Node) -> None:
    async with node.socket(reader(node)) as socket, node.rest(reader(node)) as rest:
        assert (await rest.get(f"/v1/topics/{TOPIC}/presence")).json() == {"members": []}
        await socket.subscribe(TOPIC)
        members = (await rest.get(f"/v1/topics/{TOPIC}/presence")).json()["members"]
    assert [member["client_id"] for member in members] == [socket.client_id]


@pytest.mark.statement("H-074")
async def test_an_admin_lists_topics_by_prefix_up_to_a_limit(node: Node) -> None:
    for topic in ("agent.a.events", "agent.b.events", "system.announcements"):
        await node.publish(topic)
    async with node.rest(node.iam.admin()) as rest:

        async def names(**params: str) -> list[str]:
            answer = await rest.get("/v1/topics", params=params)
            return [info["topic"] for info in answer.json()["topics"]]

        assert await names() == ["agent.a.events", "agent.b.events", "system.announcements"]
        assert await names(prefix="agent.") == ["agent.a.events", "agent.b.events"]
        assert await names(prefix="agent.", limit="1") == ["agent.a.events"]


@pytest.mark.statement("H-075")
async def test_only_admins_can_list_topics(node: Node) -> None:
    for token, status in ((None, 401), (reader(node), 403), (node.iam.service(), 403)):
        async with node.rest(token) as rest:
            assert (await rest.get("/v1/topics")).status_code == status


async def test_an_administrators_request_names_the_token_that_it_needs(node: Node) -> None:
    async with node.rest(node.iam.service()) as rest:
        for answer in (
            await rest.get("/v1/topics"),
            await rest.get("/v1/connections"),
            await rest.delete("/v1/connections/cl_none"),
        ):
            assert answer.status_code == 403
            assert "administrator" in answer.json()["remedy"]


async def test_an_unknown_path_is_a_problem_document(node: Node) -> None:
    async with node.rest(node.iam.admin()) as rest:
        answer = await rest.get("/v1/nothing")
    assert answer.status_code == 404
    assert_problem(answer)


def assert_problem(answer: httpx.Response) -> None:
    assert answer.headers["content-type"].startswith("application/problem+json")
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["code"]
    assert body["remedy"]
