from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tests.server.hub_rig import Rig

if TYPE_CHECKING:
    from pubsub_server.auth.identity import Identity
    from pubsub_server.interfaces import Caller


class Ears:
    def __init__(self) -> None:
        self.received: list[tuple[Any, ...]] = []

    def record(
        self, action: str, identity: Identity, topic: str, *, client_id: str | None,
        message_id: str | None = None, refused: str | None = None,
    ) -> None:  # fmt: skip
        self.received.append((action, identity.user_id, topic, refused))

    def auth(
        self, identity: Identity | None, caller: Caller | None, *,
        client_id: str | None = None, refused: str | None = None,
    ) -> None:  # fmt: skip
        """Other files test this."""

    def cut(
        self, identity: Identity, caller: Caller | None, *,
        client_id: str, refused: str | None = None,
    ) -> None:  # fmt: skip
        """Other files test this."""

    def wants(self, event: str, topic: str) -> bool:
        return topic != "quiet"

    def notify(self, event: str, topic: str, body: bytes) -> None:
        self.received.append((event, topic, orjson.loads(body)))


async def test_operations_and_rejections_are_audited() -> None:
    rig = Rig()
    ears = rig.hub.core.audit = Ears()
    rig.rules.unreadable = rig.rules.unwritable = lambda identity, topic: topic == "closed"
    alice = await rig.client("alice")
    alice.subscribe("a", "closed")
    alice.publish("a", 1)
    alice.publish("closed", 1)
    alice.say("unsubscribe", topics=["a"])
    assert ears.received == [
        ("subscribe", "alice", "a", None),
        ("subscribe", "alice", "closed", "forbidden"),
        ("publish", "alice", "a", None),
        ("publish", "alice", "closed", "forbidden"),
        ("unsubscribe", "alice", "a", None),
    ]


async def test_webhooks_receive_the_events_they_select() -> None:
    rig = Rig()
    ears = rig.hub.core.webhooks = Ears()
    alice = await rig.client("alice")
    alice.subscribe("a", "quiet")
    alice.subscribe("*")
    alice.read()
    alice.publish("a", {"x": 1}, id="m")
    alice.publish("a", {"x": 1}, id="m")
    alice.publish("quiet", 2)
    (message,) = [m for m in alice.messages() if m["topic"] == "a"]
    alice.close(1000)
    reported = [(event, topic) for event, topic, _ in ears.received]
    assert reported == [
        ("subscribe", "a"), ("join", "a"), ("subscribe", "*"), ("publish", "a"), ("leave", "a"),
    ]  # fmt: skip
    assert ears.received[3][2] == message


async def test_a_record_that_fails_leaves_no_publisher_without_an_answer() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.read()

    class Full(Ears):
        def notify(self, event: str, topic: str, body: bytes) -> None:
            raise OSError("the disk is full")

    rig.hub.core.webhooks = Full()
    alice.say("publish", message={"topic": "a", "data": 1}, ref="r")
    assert alice.read_one("published")["ref"] == "r"
