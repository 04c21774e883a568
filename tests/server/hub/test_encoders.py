"""A listener with its own wire format works with the hub like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pubsub_server.auth.identity import Identity
from pubsub_server.backplane import Published
from pubsub_server.listeners.websocket.encoder import SOCKET
from pubsub_server.shared.encoder import Encoder
from pubsub_server.shared.requests import Draft, SubscribeRequest
from tests.server.hub.test_far_backplane import FarBackplane
from tests.server.hub_rig import START_MS, FakeSink, Rig

if TYPE_CHECKING:
    from pubsub_server.backplane import Entry
    from pubsub_server.shared.connection import Connection

ROBOT = Identity("robot", "service")


class Lines(Encoder):
    name = "lines"
    echoes = False

    def __init__(self) -> None:
        self.encoded = 0

    def message(self, entry: Entry) -> bytes:
        self.encoded += 1
        return orjson.dumps(orjson.loads(entry.body)["data"]) + b"\n"


async def joined(rig: Rig, encoder: Encoder, *topics: str) -> tuple[Connection, FakeSink]:
    sink = FakeSink(encoder)
    connection = rig.hub.open(sink, encoder)
    await rig.hub.enter(connection, ROBOT)
    rig.hub.subscribe(connection, SubscribeRequest(topics))
    return connection, sink


def received(rig: Rig, sink: FakeSink) -> bytes:
    rig.hub.core.delivery.flush()
    data = b"".join(sink.writes)
    sink.writes.clear()
    return data


def draft(topic: str, data: bytes) -> Draft:
    return Draft(topic, "message", data, None, None, None)


async def test_a_wire_of_its_own_gets_what_sockets_publish_and_nothing_else() -> None:
    rig, lines = Rig(), Lines()
    alice = await rig.client("alice")
    _, one = await joined(rig, lines, "a", "b.*")
    _, two = await joined(rig, lines, "a")
    alice.subscribe("a")
    alice.publish("a", 1)
    alice.publish("b.c", 2)
    assert [member.user_id for member in await rig.hub.attendance.members("a")] == ["alice"]
    rig.advance(200)
    assert received(rig, one) == b"1\n2\n"
    assert received(rig, two) == b"1\n"
    assert lines.encoded == 2
    assert rig.hub.stats.connections == {"socket": 0, "lines": 2}


async def test_a_connection_without_echo_misses_what_it_published_alone() -> None:
    rig, lines = Rig(), Lines()
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.messages()
    mine, own = await joined(rig, lines, "a")
    yours, other = await joined(rig, lines, "a")
    for connection, number in ((mine, 1), (mine, 2), (yours, 3), (mine, 4)):
        (answer,) = await rig.hub.publish(
            ROBOT, [draft("a", b"%d" % number)], connection=connection
        )
        assert isinstance(answer, Published)
    assert received(rig, own) == b"3\n"
    assert received(rig, other) == b"1\n2\n4\n"
    assert [message["data"] for message in alice.messages()] == [1, 2, 3, 4]
    echoes = rig.hub.core.echoes
    assert (echoes._publishers, echoes._ids) == ({}, {})


async def test_nothing_is_kept_of_a_publisher_that_leaves_before_its_message_is_delivered() -> None:
    backplane = FarBackplane(lambda: START_MS)
    backplane.gate.set()
    rig, lines = Rig(backplane=backplane), Lines()
    mine, _ = await joined(rig, lines, "a")
    await rig.settle()
    backplane.gate.clear()
    answers: list[object] = []
    rig.hub.put(ROBOT, [draft("a", b"1")], mine, answers.extend)
    echoes = rig.hub.core.echoes
    assert len(echoes._publishers) == 1
    rig.hub.closed(mine)
    backplane.gate.set()
    await backplane.answering
    assert len(answers) == 1
    assert (echoes._publishers, echoes._ids) == ({}, {})


async def test_the_last_publisher_of_an_id_misses_its_message_and_the_others_may_close() -> None:
    rig, lines = Rig(), Lines()
    one, _ = await joined(rig, lines, "a")
    two, _ = await joined(rig, lines, "a")
    echoes = rig.hub.core.echoes
    same = Draft("a", "message", b"1", None, "same", None)
    echoes.expect(one, [same, Draft("a", "message", b"1", None, "own", None)])
    echoes.expect(two, [same])
    rig.hub.closed(one)
    assert echoes.publisher("same") is two
    assert echoes.publisher("own") is None
    rig.hub.closed(two)


async def test_frames_of_a_listener_keep_their_place_among_the_messages() -> None:
    rig, lines = Rig(), Lines()
    mine, own = await joined(rig, lines, "a")
    other, _ = await joined(rig, lines)
    await rig.hub.publish(ROBOT, [draft("a", b"1")], connection=other)
    rig.hub.send(mine, b"between\n")
    await rig.hub.publish(ROBOT, [draft("a", b"2")], connection=other)
    assert received(rig, own) == b"1\nbetween\n2\n"
    assert (rig.hub.reach("a"), rig.hub.reach("b")) == (1, 0)
    assert SOCKET.echoes
