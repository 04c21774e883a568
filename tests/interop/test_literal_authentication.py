"""Authentication and token lifetime: HIP-56 Security 1 and 10."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed

from pubsub_server.auth.api_keys import generate
from pubsub_server.settings.config import Settings
from tests.interop.peer import PATIENCE, Iam, Json, Node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import Start


@pytest.mark.statement("H-140")
@pytest.mark.parametrize(
    "frame",
    [
        {"type": "subscribe", "topics": ["system.announcements"]},
        {"type": "publish", "topic": "system.announcements", "data": {}},
        {"type": "presence.update", "data": {"status": "typing"}},
    ],
    ids=["subscribe", "publish", "presence"],
)
async def test_nothing_works_on_a_socket_before_auth(node: Node, frame: Json) -> None:
    async with node.socket(node.iam.token()) as witness, node.open() as socket:
        await witness.subscribe("system.announcements")
        await socket.send(frame)
        assert (await socket.next())["code"] == "unauthenticated"
        assert await witness.messages() == []


@pytest.mark.statement("H-140")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/topics/system.announcements/messages"),
        ("GET", "/v1/topics/system.announcements/history"),
        ("GET", "/v1/topics/system.announcements/presence"),
        ("GET", "/v1/topics"),
        ("GET", "/v1/subscribe?topics=system.announcements"),
    ],
)
async def test_no_request_works_without_a_valid_token(node: Node, method: str, path: str) -> None:
    other = Iam()
    try:
        for token in (None, "x", other.token(), node.iam.token(ttl=-60)):
            async with node.rest(token) as rest:
                body = {"type": "t", "data": {}} if method == "POST" else None
                assert (await rest.request(method, path, json=body)).status_code == 401
    finally:
        other.close()


@pytest.mark.statement("H-041", "H-140")
async def test_forged_expired_and_unsigned_tokens_are_refused_on_a_socket(node: Node) -> None:
    other = Iam()
    unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImtpbmQiOiJhZG1pbiJ9."
    head, body, _ = node.iam.token().split(".")
    try:
        tokens = {
            "forged": other.token(),
            "unsigned": unsigned,
            "signature cut off": f"{head}.{body}.",
            "no token": "Bearer x",
            "expired": node.iam.token(ttl=-60),
        }
        codes: dict[str, str] = {}
        for name, token in tokens.items():
            async with node.open() as socket:
                answer = await socket.auth(token)
                assert answer["type"] == "auth.error"
                codes[name] = answer["code"]
    finally:
        other.close()
    assert codes.pop("expired") == "token_expired"
    assert set(codes.values()) == {"token_invalid"}


@pytest.mark.statement("H-051", "H-140")
async def test_a_token_works_with_and_without_bearer_and_as_an_api_key(
    start: Start, tmp_path: Path
) -> None:
    key, digest = generate()
    keys = tmp_path / "keys.yaml"
    keys.write_text(
        json.dumps({"keys": [{"id": "k1", "sha256": digest, "user": "bot", "kind": "service"}]})
    )
    node = await start(api_keys_file=keys)
    token = node.iam.token()
    for presented in (f"Bearer {token}", f"bearer {token}", token, f"Bearer {key}", key):
        async with node.open() as socket:
            assert (await socket.auth(presented))["type"] == "auth.ok"
    assert (await node.publish("system.announcements", token=key))["id"]


@pytest.mark.statement("H-141")
async def test_a_socket_that_does_not_authenticate_in_time_is_closed(start: Start) -> None:
    # The handshake must end within the deadline, on a busy machine, too.
    node = await start(auth_deadline=500)
    async with node.open() as socket:
        assert await socket.closed() == 4401


@pytest.mark.statement("H-141")
async def test_frames_other_than_auth_do_not_extend_the_deadline(start: Start) -> None:
    node = await start(auth_deadline=500)
    async with asyncio.timeout(PATIENCE), node.open() as socket:
        with suppress(ConnectionClosed):
            while True:
                await socket.send({"type": "ping"})
                await socket.next()
                await asyncio.sleep(0.02)
        assert await socket.closed() == 4401


@pytest.mark.statement("H-141", "H-153")
def test_the_defaults_are_five_seconds_to_authenticate_and_sixty_seconds_of_notice() -> None:
    settings = Settings()
    assert (settings.auth_deadline, settings.expiring_notice) == (5_000, 60_000)


@pytest.mark.statement("H-152", "H-153")
async def test_a_socket_gets_notice_that_its_token_expires_and_continues_with_a_new_one(
    start: Start,
) -> None:
    node = await start(expiring_notice=1_900)
    async with node.socket(node.iam.token(ttl=2)) as socket:
        await socket.subscribe("system.announcements")
        for _ in range(2):
            await socket.until("auth.expiring")
            await socket.send({"type": "auth", "token": node.iam.token(ttl=2)})
            assert (await socket.until("auth.ok"))["client_id"] == socket.client_id
        await socket.send({"type": "auth", "token": node.iam.token()})
        await socket.until("auth.ok")
        await node.publish("system.announcements", {"n": 1})
        assert (await socket.message())["data"] == {"n": 1}


@pytest.mark.statement("H-154")
async def test_a_socket_that_does_not_authenticate_again_is_closed(start: Start) -> None:
    node = await start(expiring_notice=1_900)
    async with node.socket(node.iam.token(ttl=2)) as socket:
        await socket.until("auth.expiring")
        assert await socket.closed() == 4401


@pytest.mark.statement("H-152")
async def test_a_token_of_another_user_does_not_take_over_a_socket(node: Node) -> None:
    async with node.socket(node.iam.token("alice")) as socket:
        await socket.send({"type": "auth", "token": node.iam.token("mallory")})
        assert (await socket.next())["type"] in {"auth.error", "error"}
