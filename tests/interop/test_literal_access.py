"""HIP-56's channel access control, rule by rule, on a socket, a stream and REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import RulesFile, Start
    from tests.interop.peer import Json, Node

RULES_OF_HIP_56 = [
    ("org.acme.notifications", {"orgs": ["acme"]}, True),
    ("org.acme.notifications", {"orgs": ["umbrella"]}, False),
    ("org.acme.team.red", {"orgs": ["umbrella", "acme"]}, True),
    ("chat.session.abc", {"sessions_owned": ["abc"]}, True),
    ("chat.session.abc", {"sessions_shared": ["abc"]}, True),
    ("chat.session.abc", {"sessions_owned": ["xyz"]}, False),
    ("chat.session.abc", {"orgs": ["acme"], "agents": ["abc"]}, False),
    ("agent.bot1.events", {"agents": ["bot1"]}, True),
    ("agent.bot1.tools.calls", {"agents": ["bot1"]}, True),
    ("agent.bot1.events", {"agents": ["bot2"]}, False),
    ("user.alice.alerts", {}, True),
    ("user.bob.alerts", {}, False),
    ("system.announcements", {}, True),
    ("system.maintenance.planned", {}, True),
    ("elsewhere.entirely", {"orgs": ["acme"]}, False),
]


@pytest.mark.statement("H-090", "H-092", "H-093", "H-094", "H-095", "H-096", "H-142")
@pytest.mark.parametrize(("topic", "claims", "allowed"), RULES_OF_HIP_56)
async def test_the_rules_of_hip_56_apply_to_every_way_to_read(
    node: Node, topic: str, claims: Json, allowed: bool
) -> None:
    token = node.iam.token("alice", **claims)
    async with node.socket(token) as socket:
        await socket.send({"type": "subscribe", "topics": [topic]})
        if allowed:
            assert (await socket.until("subscribed"))["topics"] == [topic]
        else:
            error = await socket.until("error")
            assert (error["code"], error["topic"]) == ("forbidden", topic)
        await node.publish(topic, {"n": 1})
        assert len(await socket.messages()) == int(allowed)
    async with node.rest(token) as rest:
        for path in (f"/v1/topics/{topic}/history", f"/v1/topics/{topic}/presence"):
            assert (await rest.get(path)).status_code == (200 if allowed else 403)
        if not allowed:
            stream = await rest.get("/v1/subscribe", params={"topics": topic})
            assert stream.status_code == 403


@pytest.mark.statement("H-091")
async def test_only_the_first_matching_rule_decides(start: Start, rules: RulesFile) -> None:
    file = rules(
        """
        rules:
          - pattern: "lab.closed.**"
            require: {org_membership: nobody}
          - pattern: "lab.**"
            require: {authenticated: true}
          - pattern: "lab.closed.**"
            require: {authenticated: true}
        """
    )
    node = await start(rules=file)
    async with node.socket(node.iam.token()) as socket:
        assert (await socket.subscribe("lab.open.a"))["topics"] == ["lab.open.a"]
        await socket.send({"type": "subscribe", "topics": ["lab.closed.a"]})
        assert (await socket.until("error"))["code"] == "forbidden"


@pytest.mark.statement("H-097", "H-098", "H-099")
async def test_only_services_may_publish_unless_a_rule_grants_it(
    start: Start, rules: RulesFile
) -> None:
    file = rules(
        """
        rules:
          - pattern: "room.read.<id>"
            require: {authenticated: true}
          - pattern: "room.talk.<id>"
            require: {authenticated: true}
            publish: true
          - pattern: "room.members.<org_id>"
            require: {org_membership: "<org_id>"}
            publish: true
        """
    )
    node = await start(rules=file)
    outcomes: dict[str, list[bool]] = {}
    for name, token in {
        "member": node.iam.token("alice", orgs=["acme"]),
        "stranger": node.iam.token("mallory"),
        "service": node.iam.service(),
    }.items():
        async with node.rest(token) as rest:
            outcomes[name] = [
                (
                    await rest.post(f"/v1/topics/{topic}/messages", json={"type": "t", "data": {}})
                ).is_success
                for topic in ("room.read.a", "room.talk.a", "room.members.acme")
            ]
    assert outcomes == {
        "member": [False, True, True],
        "stranger": [False, True, False],
        "service": [True, True, True],
    }


@pytest.mark.statement("H-097", "H-142", "H-050")
async def test_a_forbidden_publish_gets_an_error_and_reaches_no_one(node: Node) -> None:
    reader = node.iam.token("alice", agents=["bot1"])
    async with node.socket(reader) as socket:
        await socket.subscribe("agent.bot1.events")
        await socket.send({"type": "publish", "topic": "agent.bot1.events", "data": {}})
        error = await socket.until("error")
        assert (error["code"], error["topic"]) == ("forbidden", "agent.bot1.events")
        assert await socket.messages() == []


@pytest.mark.statement("H-142", "H-093")
async def test_a_pattern_delivers_only_readable_topics(node: Node) -> None:
    async with node.socket(node.iam.token("alice", sessions_owned=["mine"])) as socket:
        await node.publish("chat.session.mine", {"n": 0})
        await node.publish("chat.session.other", {"n": 1})
        subscribed = await socket.subscribe("chat.session.*", since=1)
        assert [m["topic"] for m in subscribed["history"]] == ["chat.session.mine"]
        for topic in ("chat.session.other", "chat.session.mine"):
            await node.publish(topic, {"n": 2})
        assert [m["topic"] for m in await socket.messages()] == ["chat.session.mine"]


@pytest.mark.statement("H-042", "H-142")
async def test_one_denied_topic_of_a_list_leaves_the_others_granted(node: Node) -> None:
    async with node.socket(node.iam.token("alice")) as socket:
        topics = ["user.alice.alerts", "user.bob.alerts", "system.announcements"]
        await socket.send({"type": "subscribe", "topics": topics})
        frames = await socket.fence()
    subscribed = next(frame for frame in frames if frame["type"] == "subscribed")
    assert subscribed["topics"] == ["user.alice.alerts", "system.announcements"]
    assert [(e["code"], e["topic"]) for e in frames if e["type"] == "error"] == [
        ("forbidden", "user.bob.alerts")
    ]


async def test_rules_that_cannot_be_read_keep_the_server_from_starting(
    start: Start, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"missing\.yaml"):
        await start(rules=tmp_path / "missing.yaml")
