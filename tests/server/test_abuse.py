"""Clients that mean harm, or behave as if they did: what they cost, and that others go on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import httpx
import orjson
import pytest
from websockets.frames import Frame, Opcode

from pubsub_server.auth.identity import Identity, identity_from_claims
from pubsub_server.errors import ServiceError
from pubsub_server.hub import routing
from pubsub_server.hub.limits import ConnectionLimiter
from pubsub_server.interfaces import WireForm
from pubsub_server.listeners import websocket
from pubsub_server.testing import running_server
from tests.server.hub_rig import START_MS, Peer, Rig
from tests.server.test_websocket import BOUND, close_code, raw, serving

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("depth", range(240, 256))
async def test_metadata_too_deep_to_be_shown_is_refused_and_the_topic_lives(depth: int) -> None:
    rig = Rig()
    mallory = await rig.client("mallory")
    mallory.subscribe("room")
    deep = "[" * depth + "]" * depth
    mallory.send('{"type":"presence.update","topic":"room","data":{"k":' + deep + "}}")
    codes = [frame["code"] for frame in mallory.hear() if frame["type"] == "error"]
    assert codes in ([], ["invalid_payload"])
    for form in WireForm:
        alice = await rig.client("alice", form)
        alice.say("subscribe", topics=["room"])
        kinds = {frame.get("type", frame.get("event")) for frame in alice.hear()}
        assert "error" not in kinds
    mallory.close(1000)
    assert [member.user_id for member in rig.hub.attendance.members("room")] == ["alice"]


async def test_pongs_do_not_pile_up_for_one_who_reads_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as server, raw(server) as mallory:
        mallory.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (protocol,) = server.listener.protocols
        pings = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 500
        heard = asyncio.Event()
        monkeypatch.setattr(server.hub, "receive", lambda *frame: heard.set())
        for _ in range(300):
            mallory.write(pings)
            await mallory.writer.drain()
        mallory.frame(b"{}")
        async with asyncio.timeout(BOUND):
            await heard.wait()
        assert protocol.buffered() < 2 * websocket.SOFT_BYTES


async def test_fragments_without_end_are_refused_though_they_are_empty() -> None:
    async with serving() as server, raw(server) as mallory:
        mallory.frame(b'{"type":"auth","token":"mallory"}')
        assert b"auth.ok" in (await mallory.hear())[1]
        mallory.frame(b"", fin=False)
        empty = Frame(Opcode.CONT, b"", False).serialize(mask=True)
        mallory.write(empty * (websocket.FRAGMENTS + 1))
        assert b"payload_too_large" in (await mallory.hear())[1]
        opcode, payload = await mallory.hear()
        assert (opcode, close_code(payload)) == (Opcode.CLOSE, 4413)


class Orgs:
    """A token is a user and its organizations: `alice acme globex`."""

    async def authenticate(self, token: str) -> Identity:
        user, *orgs = token.split()
        return Identity(user_id=user, orgs=frozenset(orgs))


def with_orgs(rig: Rig, **limits: int) -> None:
    rig.hub.core.authenticator = Orgs()
    rig.hub.core.limiter = ConnectionLimiter(100, 100, limits)


async def renew(rig: Rig, peer: Peer, token: str) -> str:
    peer.hear()
    peer.say("auth", token=token)
    await rig.settle()
    kind: str = next(f["type"] for f in peer.hear() if f["type"].startswith("auth."))
    return kind


async def test_organizations_that_a_renewed_token_leaves_or_joins_are_counted() -> None:
    rig = Rig()
    with_orgs(rig, acme=1, globex=1)
    for _ in range(3):
        one = await rig.client("alice acme")
        assert await renew(rig, one, "alice globex") == "auth.ok"
        two = await rig.client("bob acme")
        with pytest.raises(ServiceError, match="globex"):
            await rig.client("bob globex")
        one.close()
        two.close()


async def test_a_renewed_token_of_a_full_organization_is_refused_and_the_old_one_holds() -> None:
    rig = Rig()
    with_orgs(rig, acme=1, globex=1)
    bob = await rig.client("bob acme")
    one = await rig.client("alice globex")
    assert await renew(rig, one, "alice acme") == "auth.error"
    one.say("ping")
    assert one.hear_one("pong")
    with pytest.raises(ServiceError, match="globex"):
        await rig.client("carol globex")
    one.close()
    bob.close()
    await rig.client("carol globex acme")


@pytest.mark.parametrize("claim", ["sub", "name", "picture", "jti"])
def test_a_claim_that_cannot_be_sent_is_refused(claim: str) -> None:
    with pytest.raises(ServiceError) as caught:
        identity_from_claims({"sub": "alice", claim: "a\ud800"})
    assert (caught.value.code, claim in caught.value.message) == ("token_invalid", True)


async def test_an_unknown_expectation_gets_417_and_no_failure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("pubsub_server"), "propagate", True)
    async with running_server() as server, httpx.AsyncClient(base_url=server.http) as http:
        response = await http.get("/v1/session", headers={"Expect": "miracles"})
        assert response.status_code == 417
        assert response.headers["X-Request-Id"]
        assert (await http.get("/healthz")).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_clock_that_goes_back_ends_no_token_that_the_authenticator_takes() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    rig.advance(1)
    alice.publish("a", 1)
    back = 3_600_000
    wall = rig.hub.core.today
    rig.hub.core.today = lambda: wall() - back
    bob = await rig.client(f"bob:user:{START_MS + 121_000 - back}")
    for _ in range(5):
        rig.advance(20)
        bob.say("ping")
        rig.hub.heard(bob.connection)
    assert bob.ending() is None
    rig.advance(25)
    assert bob.ending() == (4401, "token_expired")


async def test_messages_keep_their_order_when_the_clock_goes_back() -> None:
    rig = Rig()
    alice = await rig.client("alice")
    alice.subscribe("a")
    alice.publish("a", 1)
    rig.now -= 500
    alice.publish("a", 2)
    one, two = alice.messages()
    assert one["timestamp"] <= two["timestamp"]
    assert one["seq"] + 1 == two["seq"]


async def test_a_transport_that_fails_takes_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    broken, alice = await rig.client("broken"), await rig.client("alice")
    for peer in (broken, alice):
        peer.subscribe("a", presence=False)
        peer.hear()

    def fail(data: bytes) -> None:
        raise RuntimeError("the handle is closed")

    monkeypatch.setattr(broken.sink, "write", fail)
    alice.publish("a", 1)
    assert [message["data"] for message in alice.messages()] == [1]
    assert broken.sink.aborted


async def test_routes_are_forgotten_when_they_name_too_many_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "PLACES_MAX", 20)
    rig = Rig()
    peers = [await rig.client(f"user{n}") for n in range(6)]
    for peer in peers:
        peer.subscribe("**", presence=False)
    router = rig.hub.core.router
    for n in range(50):
        peers[0].publish(f"t.{n}", n)
        assert sum(len(route) for route in router._routes.values()) <= 20
    assert [len(peer.messages()) for peer in peers] == [50] * 6


async def test_a_redis_that_is_set_and_not_used_is_said_at_the_start(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("pubsub_server"), "propagate", True)
    async with running_server(redis_url="redis://user:secret@localhost:6379"):
        pass
    (warning,) = [r.getMessage() for r in caplog.records if "redis_url" in r.getMessage()]
    assert "not used" in warning
    assert "secret" not in warning


async def events(
    http: httpx.AsyncClient, headers: dict[str, str], until: Callable[[str], bool]
) -> list[str]:
    """Lines of a stream up to the first that will do."""
    lines: list[str] = []
    async with (
        asyncio.timeout(BOUND),
        http.stream("GET", "/v1/subscribe?topics=demo.new", headers=headers) as response,
    ):
        async for line in response.aiter_lines():
            lines.append(line)
            if until(line):
                return lines
    raise AssertionError(lines)


async def test_a_stream_cut_before_its_first_message_resumes_on_a_topic_without_a_log() -> None:
    async with running_server() as server, httpx.AsyncClient(base_url=server.http) as http:
        headers = {"Authorization": f"Bearer {server.token()}"}
        lines = await events(http, headers, lambda line: line.startswith("data:"))
        (mark,) = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
        body = {"type": "t", "data": "while you were away"}
        await http.post("/v1/topics/demo.new/messages", headers=headers, json=body)
        again = {**headers, "Last-Event-ID": mark}
        lines = await events(http, again, lambda line: line.startswith("data:"))
        history = orjson.loads(lines[-1].removeprefix("data: "))["history"]
        assert [message["data"] for message in history] == ["while you were away"]
