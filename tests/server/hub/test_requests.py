from __future__ import annotations

import orjson
import pytest

from pubsub_server.auth.identity import Identity
from pubsub_server.backplane import Published
from pubsub_server.errors import ServiceError
from pubsub_server.shared.requests import Draft
from tests.server.hub_rig import ANNA, Rig


async def test_history_is_paged_within_its_limits() -> None:
    rig = Rig(history_page_max=10, history_page_default=5)
    alice = await rig.client("alice")
    for number in range(20):
        alice.publish("a", number)
    page = await rig.hub.history(ANNA, "a")
    assert [orjson.loads(m)["data"] for m in page.messages] == [15, 16, 17, 18, 19]
    assert page.has_more
    for limit in (0, 11):
        with pytest.raises(ServiceError) as caught:
            await rig.hub.history(ANNA, "a", limit=limit)
        assert (caught.value.code, caught.value.field) == ("invalid_option", "limit")
    with pytest.raises(ServiceError) as caught:
        await rig.hub.history(ANNA, "a", before="m", after=5)
    assert caught.value.code == "invalid_option"


async def test_reading_needs_a_valid_topic_and_a_permission() -> None:
    rig = Rig()
    rig.rules.unreadable = lambda identity, topic: True
    for topic, code in (("a", "forbidden"), ("a.*", "invalid_topic")):
        with pytest.raises(ServiceError) as caught:
            await rig.hub.history(ANNA, topic)
        assert caught.value.code == code
        with pytest.raises(ServiceError) as caught:
            await rig.hub.presence(ANNA, topic)
        assert caught.value.code == code


async def test_topics_are_listed_for_admins() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("x.b")
    alice.publish("x.a", 1)
    alice.publish("y", 1)
    reports, more = await rig.hub.topics(ANNA, prefix="x.")
    assert [(r.topic, r.subscribers, r.messages) for r in reports] == [("x.a", 0, 1), ("x.b", 1, 0)]
    assert not more
    reports, more = await rig.hub.topics(ANNA, limit=1)
    assert ([r.topic for r in reports], more) == (["x.a"], True)
    with pytest.raises(ServiceError) as caught:
        await rig.hub.topics(Identity(user_id="alice"))
    assert caught.value.code == "forbidden"


async def test_rest_publishes_reach_sockets() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    (result,) = await rig.hub.publish(ANNA, [Draft("a", "t", b"1", None, None, None)])
    assert isinstance(result, Published)
    assert [m["id"] for m in alice.messages()] == [result.id]
