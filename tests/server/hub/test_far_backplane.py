from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pubsub_server.auth.identity import Identity
from pubsub_server.backplanes.memory import MemoryBackplane
from pubsub_server.errors import ServiceError
from pubsub_server.shared.requests import Draft
from pubsub_server.shared.topic_index import AT_ONCE
from tests.cluster.waiting import until
from tests.server.hub_rig import START_MS, Rig
from tests.server.test_history import memory_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pubsub_server.backplane import Origin, Published, Replay


class FarBackplane(MemoryBackplane):
    """Answers with a delay, like a backplane behind a network."""

    def __init__(self, wall: Callable[[], int]) -> None:
        store = memory_store()
        super().__init__(store, wall)
        self.gate = asyncio.Event()
        self.failing = False

    async def _wait(self) -> None:
        await self.gate.wait()
        if self.failing:
            raise ServiceError("unavailable", "the store does not answer", retry_after_ms=100)

    def publish(
        self,
        drafts: Sequence[Draft],
        sender: tuple[str, str],
        done: Callable[[list[Published | ServiceError]], None],
        origin: Origin | None = None,
    ) -> None:
        async def later() -> None:
            try:
                await self._wait()
            except ServiceError as error:
                done([error for _ in drafts])
            else:
                done(self.append(drafts, sender))

        self.answering = asyncio.ensure_future(later())

    def replay(  # type: ignore[override]
        self, topics: Sequence[str], patterns: Sequence[str], *, since: int | None,
        after: Mapping[str, int], newest: int | None, allowed: Callable[[str], bool],
    ) -> Awaitable[Replay]:  # fmt: skip
        found = MemoryBackplane.replay(
            self, topics, patterns, since=since, after=after, newest=newest, allowed=allowed
        )

        async def later() -> Replay:
            await self._wait()
            return found

        return later()


async def test_live_messages_wait_behind_a_replay_that_is_on_its_way() -> None:
    backplane = FarBackplane(lambda: START_MS)
    rig = Rig(backplane=backplane)
    alice = await rig.client("alice")
    alice.say("subscribe", topics=["a"], since=0, ref="1", presence=False)
    backplane.append([Draft("a", "t", b"1", None, None, None)], ("user", "u"))
    assert alice.read() == []
    backplane.gate.set()
    await rig.settle()
    assert [f["type"] for f in alice.read()] == ["subscribed", "message"]


async def test_a_publish_is_answered_when_the_store_has_answered() -> None:
    backplane = FarBackplane(lambda: START_MS)
    rig = Rig(backplane=backplane)
    alice = await rig.client("alice")
    alice.say("publish", ref="1", topic="a", data=1)
    assert alice.read() == []
    backplane.gate.set()
    await backplane.answering
    await rig.settle()
    assert alice.read_one("published")["ref"] == "1"
    backplane.failing = True
    alice.say("publish", ref="2", topic="a", data=1)
    alice.say("subscribe", ref="3", topics=["a"])
    await backplane.answering
    await rig.settle()
    errors = alice.read()
    assert [(e["code"], e["ref"]) for e in errors] == [("unavailable", "2"), ("unavailable", "3")]
    alice.say("ping")
    assert alice.read_one("pong")


async def test_a_new_token_with_fewer_permissions_also_limits_a_subscribe_in_progress() -> None:
    backplane = FarBackplane(lambda: START_MS)
    for topic in ("a", "b", "c.x", "c.y"):
        backplane.append([Draft(topic, "t", b"1", None, None, None)], ("user", "u"))
    rig = Rig(backplane=backplane)
    alice = await rig.client("alice")
    rig.people.gate = asyncio.Event()
    alice.say("auth", token="alice")
    elsewhere = {"b": 5, "c.x": 5}
    alice.say("subscribe", topics=["a", "b", "c.*"], history=9, after=elsewhere, ref="1")
    rig.rules.unreadable = lambda identity, topic: topic in ("b", "c.x")
    rig.people.gate.set()
    async with asyncio.timeout(60):
        await until(lambda: alice.connection.authenticating, False)
    backplane.gate.set()
    await rig.settle()
    frames = alice.read()
    (answer,) = (each for each in frames if each["type"] == "subscribed")
    assert answer["topics"] == ["a", "c.*"]
    assert [(each["topic"], each["code"]) for each in answer["denied"]] == [("b", "forbidden")]
    assert [each["topic"] for each in answer["history"]] == ["a", "c.y"]
    assert set(answer["positions"]) == {"a", "c.y"}
    assert not {"reset", "truncated"} & answer.keys()
    assert [f["topic"] for f in frames if f["type"] == "presence.snapshot"] == ["a"]
    assert rig.hub.core.presence.topics() == ["a"]


async def test_a_new_token_with_fewer_permissions_also_limits_a_search_in_progress() -> None:
    rig = Rig()
    backplane = rig.hub.core.backplane
    assert isinstance(backplane, MemoryBackplane)
    for number in range(AT_ONCE + 1):
        draft = Draft(f"c.{number}", "t", b"1", None, None, None)
        backplane.append([draft], ("user", "u"))
    rig.rules.unreadable = lambda identity, topic: topic == "c.7" and bool(identity.expires_at)
    alice = await rig.client("alice")
    rig.people.gate = asyncio.Event()
    alice.say("auth", token=f"alice:user:{START_MS + 1_000_000}")
    alice.say("subscribe", topics=["c.*"], history=1, ref="1")
    rig.people.gate.set()
    await rig.settle()
    answers = [each for each in alice.read() if each["type"] == "subscribed"]
    shown = {message["topic"] for answer in answers for message in answer["history"]}
    assert {"c.7", "c.8"} & (shown | set(answers[-1]["positions"])) == {"c.8"}


async def test_a_new_token_with_fewer_permissions_also_limits_the_members_that_were_found() -> None:
    backplane = FarBackplane(lambda: START_MS)
    rig = Rig(backplane=backplane)
    bob = Identity(user_id="bob", kind="user")
    for number in range(AT_ONCE + 1):
        rig.hub.core.presence.join("bob", bob, f"c.{number}", START_MS)
    alice = await rig.client("alice")
    rig.people.gate = asyncio.Event()
    alice.say("auth", token="alice")
    alice.say("subscribe", topics=["c.*"], ref="1")
    async with asyncio.timeout(60):
        await until(lambda: alice.connection.wild, 1)
    rig.rules.unreadable = lambda identity, topic: topic == "c.7"
    rig.people.gate.set()
    async with asyncio.timeout(60):
        await until(lambda: alice.connection.authenticating, False)
    backplane.gate.set()
    await rig.settle()
    shown = {each["topic"] for each in alice.read() if each["type"] == "presence.snapshot"}
    assert {"c.6", "c.7", "c.8"} & shown == {"c.6", "c.8"}
